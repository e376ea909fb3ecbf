"""Consumes from a subscription over HTTP: pulls and acknowledges deliveries with plain requests, without a
persistent connection."""

from collections.abc import Sequence
from typing import cast

import msgspec
from msgspec import UNSET

from millpond.frontends.web.convert import encoded_as, size_of
from millpond.frontends.web.handlers.subscriptions import SubscriptionPath
from millpond.frontends.web.operations import HttpCall, NoParameters, RawResponse, json_body, operation
from millpond.frontends.web.rights import READ_SUBSCRIPTION, READ_TOPIC
from millpond.frontends.web.schemas import (
    AcksJson,
    AnsweredIdJson,
    AnsweredJson,
    DeliveryJson,
    ExtensionsJson,
    MessageHeaderJson,
    NacksJson,
    PulledDeliveriesJson,
    PullJson,
    Shown,
)
from millpond.frontends.web.site import cancel_on_disconnect
from millpond.model.quotas import CONSUMER_BYTE_RATE
from millpond.queues import AckResult, Pulled, PullerName
from millpond.queues.deadletters import is_public
from millpond.security.requirements import needs
from millpond.security.throttling import response_bytes_max

encode = msgspec.json.Encoder().encode


@operation(
    "POST",
    "/topics/{topic}/subscriptions/{subscription}/pull",
    rights=needs(READ_SUBSCRIPTION, READ_TOPIC, waits=True, counts=CONSUMER_BYTE_RATE),
    parameters=SubscriptionPath,
    query=NoParameters,
    body=json_body(PullJson),
    returns={200: PulledDeliveriesJson},
    error_statuses=(404, 409),
    redirects=True,
)
async def pull(call: HttpCall[SubscriptionPath, NoParameters, PullJson]) -> RawResponse:
    """Pull deliveries for one consumer, up to a count and a size; with `wait_ms` it waits for the first one.
    Acknowledge each within the subscription's ack timeout, or it is redelivered. A consumer has one pull at a time
    (409). A broker delivers only messages of partitions that it owns; the response lists the other brokers. A broker
    that owns none redirects to one that does (307)."""
    asked = call.body
    brokers = await call.site.services.administration.other_owners(call.path.topic, "http")
    pulling = call.site.services.pulling.pull(
        _name(call.path, asked.consumer),
        messages_max=asked.messages_max,
        bytes_max=response_bytes_max(call.access, asked.bytes_max),
        wait_ms=asked.wait_ms,
    )
    pulled = await cancel_on_disconnect(call.receive, pulling)
    size = size_of((each.partition, each.record) for each in pulled)
    return RawResponse(
        await call.site.run_off_loop_if_large(
            size, lambda: _encoded(call.path, pulled, brokers, asked.encoding)
        )
    )


@operation(
    "POST",
    "/topics/{topic}/subscriptions/{subscription}/ack",
    rights=needs(READ_SUBSCRIPTION, READ_TOPIC),
    parameters=SubscriptionPath,
    query=NoParameters,
    body=json_body(AcksJson),
    returns={200: AnsweredJson},
    error_statuses=(404,),
)
async def ack(call: HttpCall[SubscriptionPath, NoParameters, AcksJson]) -> AnsweredJson:
    """Acknowledge messages. A result of `ok` is durable: the message is never delivered again."""
    asked = call.body
    name = _name(call.path, asked.consumer)
    return _acknowledged(asked.ack_ids, await call.site.services.pulling.ack(name, asked.ack_ids))


@operation(
    "POST",
    "/topics/{topic}/subscriptions/{subscription}/nack",
    rights=needs(READ_SUBSCRIPTION, READ_TOPIC),
    parameters=SubscriptionPath,
    query=NoParameters,
    body=json_body(NacksJson),
    returns={200: AnsweredJson},
    error_statuses=(404,),
)
async def nack(call: HttpCall[SubscriptionPath, NoParameters, NacksJson]) -> AnsweredJson:
    """Reject messages that could not be handled: they are redelivered later, or become dead letters when they have
    failed too often."""
    asked = call.body
    name, delay_ms = _name(call.path, asked.consumer), asked.delay_ms
    results = await call.site.services.pulling.nack(
        name, asked.ack_ids, None if delay_ms is UNSET else delay_ms, asked.reason
    )
    return _acknowledged(asked.ack_ids, results)


@operation(
    "POST",
    "/topics/{topic}/subscriptions/{subscription}/extend",
    rights=needs(READ_SUBSCRIPTION, READ_TOPIC),
    parameters=SubscriptionPath,
    query=NoParameters,
    body=json_body(ExtensionsJson),
    returns={200: AnsweredJson},
    error_statuses=(404,),
)
async def extend(call: HttpCall[SubscriptionPath, NoParameters, ExtensionsJson]) -> AnsweredJson:
    """Extend the ack timeout of these deliveries, counted from now."""
    asked = call.body
    name = _name(call.path, asked.consumer)
    results = await call.site.services.pulling.extend(name, asked.ack_ids, asked.extend_ms)
    return _acknowledged(asked.ack_ids, results)


def _name(path: SubscriptionPath, consumer: str) -> PullerName:
    return PullerName(path.topic, path.subscription, consumer)


def _acknowledged(ack_ids: Sequence[str], results: Sequence[AckResult]) -> AnsweredJson:
    pairs = zip(ack_ids, results, strict=True)
    return AnsweredJson([AnsweredIdJson(ack_id, result.value) for ack_id, result in pairs])


def _encoded(path: SubscriptionPath, pulled: Sequence[Pulled], brokers: list[str], shown: Shown) -> bytes:
    # Encode deliveries one by one: Python switches threads only between them.
    deliveries = [msgspec.Raw(encode(_delivery(each, shown))) for each in pulled]
    return encode(
        PulledDeliveriesJson(path.topic, path.subscription, cast("list[DeliveryJson]", deliveries), brokers)
    )


def _delivery(pulled: Pulled, shown: Shown) -> DeliveryJson:
    record = pulled.record
    return DeliveryJson(
        ack_id=pulled.ack_id,
        partition=pulled.partition,
        offset=record.offset,
        number=record.offset + 1,
        timestamp_ms=record.timestamp,
        age_ms=pulled.age_ms,
        retry_count=pulled.retry_count,
        key=encoded_as(record.key, shown),
        value=encoded_as(record.value, shown),
        headers=[
            MessageHeaderJson(name, encoded_as(value, shown))
            for name, value in record.headers
            if is_public(name)
        ],
        encoding="base64" if shown == "base64" else "text",
    )
