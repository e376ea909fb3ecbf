"""Calls of the gRPC interface as a client makes them, by name, and what their refusals carry."""

import contextlib

import grpc
from google.protobuf import message_factory
from google.rpc import error_details_pb2, status_pb2

from millpond.frontends.rpc.errors import DETAILS_KEY
from millpond.frontends.rpc.server import SERVICES
from millpond.stubs import log_pb2
from millpond.testing import running_broker

METHODS = {f"{service.name}.{method.name}": method for service in SERVICES for method in service.methods}
UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
CALL_SECONDS_MAX = 30


class Wire:
    """`await wire("Log.Produce", request)`; streams are given back as gRPC's calls."""

    def __init__(self, channel):
        self.channel = channel

    def __call__(self, name, request=None, **options):
        method = METHODS[name]
        kind = {
            (0, 0): "unary_unary",
            (0, 1): "unary_stream",
            (1, 0): "stream_unary",
            (1, 1): "stream_stream",
        }
        make = getattr(self.channel, kind[method.client_streaming, method.server_streaming])
        answer = message_factory.GetMessageClass(method.output_type)
        path = f"/{method.containing_service.full_name}/{method.name}"
        call = make(path, lambda message: message.SerializeToString(), answer.FromString)
        return call(request, **{"timeout": CALL_SECONDS_MAX, **options})

    async def produce(self, topic, *values, **fields):
        messages = [log_pb2.NewMessage(value=value) for value in values]
        return await self("Log.Produce", log_pb2.ProduceRequest(topic=topic, messages=messages, **fields))

    async def poll(self, topic, read_from=1, **fields):
        request = log_pb2.PollRequest(topic=topic, **fields)
        request.positions.add(read_from=read_from)
        return await self("Log.Poll", request)


@contextlib.asynccontextmanager
async def serving(*place, **settings):
    """A broker in this process, and a `Wire` to it."""
    async with (
        running_broker(*place, grpc=True, **settings) as broker,
        grpc.aio.insecure_channel(broker.listeners["grpc"], options=UNLIMITED) as channel,
    ):
        yield broker, Wire(channel)


def values(response):
    return [message.value for message in response.messages]


def details_of(error):
    """(google.rpc.Status, ErrorInfo, RetryInfo or None) of a refused call."""
    [packed] = [value for key, value in error.trailing_metadata() if key == DETAILS_KEY]
    return details_in(packed)


def details_in(packed):
    status = status_pb2.Status.FromString(packed)
    info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
    assert status.details[0].Unpack(info)
    has_retry = len(status.details) > 1 and status.details[1].Unpack(retry)
    return status, info, retry if has_retry else None
