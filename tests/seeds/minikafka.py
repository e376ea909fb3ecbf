"""A MiniKafka client of its own: made from the seeds' schema, here written out again, and none of our code.

Its messages live in a pool of their own, because ours are registered under the same names.
"""

from typing import NamedTuple

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_tools import protoc

SCHEMA = """
syntax = "proto3";
package protocol;

service MiniKafka {
  rpc Produce(ProduceRequest) returns (MsgNumber) {}
  rpc Poll(PollRequest) returns (PollResponse) {}
}
message Topic { string topic = 1; }
message Payload { bytes payload = 1; }
message MsgNumber { uint32 msg_number = 1; }
message ProduceRequest { Topic topic = 1; Payload payload = 2; }
message PollRequest { string topic = 1; MsgNumber read_from = 2; }
message PollResponse { repeated Payload payloads = 1; MsgNumber new_read_from = 2; }
"""
CALL_SECONDS_MAX = 60


class Polled(NamedTuple):
    payloads: list[bytes]
    read_from: int


def generate(folder, *outputs):
    """Have protoc make something of the schema, as anybody would."""
    (folder / "minikafka.proto").write_text(SCHEMA)
    made = [f"--{name}={folder / place}" for name, place in outputs]
    assert protoc.main(["protoc", f"-I{folder}", *made, "minikafka.proto"]) == 0


def messages(folder):
    """The schema's messages by name."""
    generate(folder, ("descriptor_set_out", "minikafka.bin"))
    files = descriptor_pb2.FileDescriptorSet.FromString((folder / "minikafka.bin").read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClassesForFiles([file.name for file in files.file], pool)


class MiniKafka:
    """With gRPC's own limits, as the seeds' clients have them, unless a test says otherwise."""

    def __init__(self, address, kinds, options=()):
        self.kinds = {name.removeprefix("protocol."): kind for name, kind in kinds.items()}
        self._channel = grpc.insecure_channel(address, options=list(options))
        self._calls = {
            name: self._channel.unary_unary(
                f"/protocol.MiniKafka/{name}",
                self.kinds[request].SerializeToString,
                self.kinds[response].FromString,
            )
            for name, request, response in (
                ("Produce", "ProduceRequest", "MsgNumber"),
                ("Poll", "PollRequest", "PollResponse"),
            )
        }

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._channel.close()

    def call(self, name, request):
        return self._calls[name](request, timeout=CALL_SECONDS_MAX, wait_for_ready=True)

    def produce(self, topic, payload):
        """The message's number."""
        kinds = self.kinds
        request = kinds["ProduceRequest"](
            topic=kinds["Topic"](topic=topic), payload=kinds["Payload"](payload=payload)
        )
        return self.call("Produce", request).msg_number

    def poll(self, topic, read_from):
        request = self.kinds["PollRequest"](
            topic=topic, read_from=self.kinds["MsgNumber"](msg_number=read_from)
        )
        answer = self.call("Poll", request)
        return Polled([each.payload for each in answer.payloads], answer.new_read_from.msg_number)

    def poll_all(self, topic, read_from=1):
        """Poll after poll, until there is nothing more."""
        payloads = []
        while more := (polled := self.poll(topic, read_from)).payloads:
            assert polled.read_from > read_from, "a poll that does not get on"
            payloads += more
            read_from = polled.read_from
        return payloads


def refusal(call):
    """The status that a call is refused with."""
    try:
        answer = call()
    except grpc.RpcError as error:
        return error
    raise AssertionError(f"not refused, but answered: {answer!r}")
