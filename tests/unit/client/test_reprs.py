"""Clients, messages and deliveries show what they are, on one line."""

import pytest
from tests.unit.client.deliveries import NoLink, delivery

from millpond import Admin, Consumer, Message, Payloads, Producer, Publisher, Subscriber
from millpond.client import (
    AsyncAdmin,
    AsyncConsumer,
    AsyncDelivery,
    AsyncPayloads,
    AsyncProducer,
    AsyncPublisher,
    AsyncSubscriber,
)

NOWHERE = "127.0.0.1:1"


@pytest.mark.parametrize(
    ("kinds", "arguments", "shown"),
    [
        ((Producer, AsyncProducer), {"topic": "t"}, "topic='t' address='127.0.0.1:1'"),
        ((Producer, AsyncProducer), {}, "topic=None address='127.0.0.1:1'"),
        ((Publisher, AsyncPublisher), {"topic": "t"}, "topic='t' address='127.0.0.1:1'"),
        ((Payloads, AsyncPayloads), {"topic": "t"}, "topic='t' address='127.0.0.1:1'"),
        ((Admin, AsyncAdmin), {}, "address='127.0.0.1:1'"),
        (
            (Consumer, AsyncConsumer),
            {"topics": "t", "offset": 4},
            "topics=['t'] read_from=5 address='127.0.0.1:1'",
        ),
        (
            (Consumer, AsyncConsumer),
            {"topics": ["a", "b"], "read_from": {"b": 7}},
            "topics=['a', 'b'] read_from={'a': None, 'b': 7} address='127.0.0.1:1'",
        ),
        (
            (Consumer, AsyncConsumer),
            {"topics": "t", "read_from": "latest"},
            "topics=['t'] read_from=None address='127.0.0.1:1'",
        ),
        (
            (Subscriber, AsyncSubscriber),
            {"topic": "t", "subscription": "s", "consumer": "me"},
            "topic='t' subscription='s' consumer='me' address='127.0.0.1:1'",
        ),
    ],
)
async def test_a_client_shows_what_it_is_connected_to(kinds, arguments, shown):
    for kind in kinds:
        client = kind(address=NOWHERE, **arguments)
        assert repr(client) == f"<{kind.__name__} {shown}>"
        closing = client.close()
        if closing is not None:
            await closing
        assert repr(client) == f"<{kind.__name__} {shown} closed>"


def test_a_message_shows_where_it_is_stored_and_the_beginning_of_its_value():
    message = Message(5, b"v" * 1_000, b"k", (("h", b"1"),), 7, 2, "orders")
    assert repr(message) == (
        "Message(topic='orders', partition=2, number=5, key=b'k', "
        f"value=b'{'v' * 60}'… (1000 bytes), headers=(('h', b'1'),), timestamp_ms=7)"
    )
    assert "value=None" in repr(Message(1, None))


def test_a_delivery_shows_its_message_and_whether_it_was_answered():
    found = AsyncDelivery(NoLink(), 0, 1, delivery(NoLink(), 3)._raw, 100.0)
    shown = repr(found)
    assert shown.startswith(f"<AsyncDelivery topic={found.topic!r} partition=0 number=3 key=")
    assert "retries=0" in shown
    assert shown.endswith(" not answered>")
