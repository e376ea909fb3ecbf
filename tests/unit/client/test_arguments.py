"""Every argument of every public call is checked at the call: what is wrong is refused there, by name, and alone."""

import asyncio
import inspect
import math
import time
from datetime import UTC, datetime

import pytest
from tests.unit.client.deliveries import NoLink, delivery

from millpond import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncPayloads,
    AsyncProducer,
    AsyncPublisher,
    AsyncSubscriber,
    Consumer,
    PayloadReference,
    Payloads,
    Producer,
    Publisher,
    Subscriber,
)
from millpond.client import Acknowledgement, AclEntry, AsyncTransaction, Delivery, Sent
from millpond.client.delivery import BaseDelivery
from millpond.client.message import records_of
from millpond.model.errors import (
    InvalidArgument,
    InvalidPartitionCount,
    InvalidRecord,
    InvalidRequest,
    InvalidTopicName,
    UnknownPartition,
)
from millpond.model.variables import ADDRESS_VARIABLE

NOWHERE = "127.0.0.1:1"
SURROGATE = "\ud800"

TEXT = (None, 1, b"t", ["t"], SURROGATE)
TOPIC = (None, 1, b"t", ["a", "b"], ("a",), {"a"}, "", "no/slash", "..", "x" * 250, SURROGATE)
OPTIONAL_TOPIC = TOPIC[1:]
TOPICS = (None, 1, b"t", {"a"}, "", "no/slash", [], [1], ["a", ""], ["a", "a"])
LABEL = (*TEXT, "")
OPTIONAL_LABEL = (1, b"g", ["g"], "", SURROGATE)
FLAG = (None, 1, 0, "yes")
COUNT = (None, True, 1.0, "1", 0, -1, 2**63)
PARTITION = (True, 1.0, "0")
NUMBER_OF_SECONDS = (True, "1", b"1", math.nan)
SECONDS = (*NUMBER_OF_SECONDS, -1)
TIMEOUT = (*SECONDS, None, 0, math.inf)
BYTES = (1, 1.0, "text", ["x"], True)
TIMESTAMP = (time.time() * 1000, 1.0, True, "1", -1, 2**63, datetime.now(UTC))
ADDRESS = (
    1,
    b"127.0.0.1:1",
    "nonsense",
    "127.0.0.1",
    ":",
    "127.0.0.1:",
    "h:0",
    "h:65536",
    "h:http",
    "http://h:1",
)
ADDRESSES = (
    *ADDRESS,
    "::1:9999",
    "[nonsense]:1",
    "a b:1",
    "h:1,nonsense",
    [],
    [1],
    ["h:1", "nonsense"],
    "",
    ",",
    {"h:1"},
)
HEADERS = (
    1,
    "text",
    b"bytes",
    [1],
    ["ab"],
    [("a", "text")],
    [(1, b"x")],
    [("a", b"x", 1)],
    {"a": 1},
    {1: b"x"},
)
HEADER_NAMES = ([(SURROGATE, b"x")], {SURROGATE: b"x"})
ATTRIBUTES = (1, "text", [("a", b"x")], {1: b"x"}, {"a": 1}, {"a": True}, {"millpond-x": b"x"})
CONFIGS = (1, "text", [("a", "b")], {"a": 1}, {"a": None}, {1: "b"}, {"a": True})
ALTERED_CONFIGS = tuple(each for each in CONFIGS if each != {"a": None})
SUBSCRIPTION_CONFIGS = (1, "text", [("a", "b")], {"a": 1.5}, {"a": None}, {1: "b"}, {"a": True})
WRONG_POSITIONS = ({0: 1.0}, {0: True}, {0: "latest"}, {"0": 1}, {-1: 1}, {True: 1})
TOO_LARGE = (2**63, {0: 2**63})
READ_FROM = (0, -1, "newest", "oldest", True, 1.5, b"earliest", [1], {0: 0}, *TOO_LARGE, *WRONG_POSITIONS)
TOO_LARGE_OFFSET = (2**63 - 1, {0: 2**63 - 1})
WRONG_OFFSET = (-1, "earliest", True, 1.5, b"0", [1], datetime.now(UTC), {0: -1})
OFFSET = (*WRONG_OFFSET, *TOO_LARGE_OFFSET, *WRONG_POSITIONS)
START = {"read_from": READ_FROM, "offset": OFFSET}
ONE_START = {"read_from": (*READ_FROM, {0: 1}), "offset": (*OFFSET, {0: 1})}
FUNCTION = (None, 1, "print")
COMPRESSION = (None, 1, "rar", b"none", True)

TLS = (1, b"ca", ["ca"], "", "/no/such/file")
USERNAME = (1, b"u", "", "a:b", "a\n", SURROGATE, "without-password")
PASSWORD = (1, b"p", "", SURROGATE, "without-username")
TOKEN = (1, b"t", "", "two words", "\n", "ä", SURROGATE)

CLIENT = {
    "address": ADDRESSES,
    "timeout": TIMEOUT,
    "tls": TLS,
    "username": USERNAME,
    "password": PASSWORD,
    "token": TOKEN,
}
MESSAGE = {
    "value": BYTES,
    "topic": OPTIONAL_TOPIC,
    "key": BYTES,
    "headers": (*HEADERS, *HEADER_NAMES),
    "partition": PARTITION,
    "timestamp_ms": TIMESTAMP,
}
PUBLISHED = {
    "value": BYTES,
    "topic": OPTIONAL_TOPIC,
    "key": BYTES,
    "attributes": ATTRIBUTES,
    "deliver_at": tuple(each for each in TIMESTAMP if not isinstance(each, datetime)),
    "delay": SECONDS,
}
NAMED = {"topic": LABEL, "name": LABEL}
PRINCIPAL = (*LABEL, "alice", "User:", ":alice")
TIMEOUT_OR_NONE = tuple(each for each in TIMEOUT if each is not None)
ACL = AclEntry("topic", "t", "User:alice", "read")
ACL_FIELDS = {
    "resource_type": (1, b"topic", "", "TOPIC", "any", "unknown"),
    "name": OPTIONAL_LABEL,
    "pattern_type": (1, b"literal", "", "any", "glob"),
    "principal": PRINCIPAL[1:],
    "host": OPTIONAL_LABEL,
    "operation": (1, b"read", "", "READ", "any", "unknown"),
    "permission": (1, b"allow", "", "any", True),
}

WRONG = {
    "Producer": {
        "topic": OPTIONAL_TOPIC,
        "compression": COMPRESSION,
        "batch_bytes": COUNT,
        "buffer_bytes_max": COUNT,
        **CLIENT,
    },
    "Producer.send": MESSAGE,
    "Producer.submit": MESSAGE,
    "Producer.send_many": {
        "values": (None, 1, b"one", "text", {b"a": 1}, [1], [b"a", "b"], (b"a", 1.5)),
        "topic": OPTIONAL_TOPIC,
        "partition": PARTITION,
    },
    "Consumer": {
        "topics": TOPICS,
        **START,
        "partition": PARTITION,
        "group": OPTIONAL_LABEL,
        "reader": OPTIONAL_LABEL,
        "position_file": (1, b"file", ["file"]),
        "strict": FLAG,
        "uncommitted": FLAG,
        **CLIENT,
    },
    "Consumer.poll": {"wait": SECONDS, "messages_max": COUNT, "bytes_max": COUNT},
    "Consumer.seek": START,
    "Admin": CLIENT,
    "Admin.create_topic": {"name": LABEL, "partitions": (True, 1.0, "1", 0, -1, 10_001), "configs": CONFIGS},
    "Admin.describe_topic": {"name": LABEL},
    "Admin.alter_topic": {"name": LABEL, "partitions": (True, 1.0, "1", 0), "configs": ALTERED_CONFIGS},
    "Admin.delete_topic": {"name": LABEL},
    "Admin.delete_messages": {
        "topic": LABEL,
        "before": (True, 1.0, "1", -1),
        "partition": (*PARTITION, None, -1, 2**32),
    },
    "Admin.find_by_time": {"topic": LABEL, "timestamp_ms": (None, 1.0, True, "1", 2**63, datetime.now(UTC))},
    "Admin.describe_group": {"name": LABEL},
    "Admin.commit_positions": {"group": LABEL, "topic": LABEL, **START},
    "Admin.delete_group": {"name": LABEL},
    "Admin.create_subscription": {**NAMED, "config": SUBSCRIPTION_CONFIGS, **ONE_START},
    "Admin.alter_subscription": {**NAMED, "config": SUBSCRIPTION_CONFIGS},
    "Admin.delete_subscription": NAMED,
    "Admin.list_subscriptions": {"topic": OPTIONAL_LABEL},
    "Admin.describe_subscription": {
        **NAMED,
        "keys_max": (None, True, 1.0, -1, 2**32),
        "failing_max": (None, True, 1.0, -1, 2**32),
    },
    "Admin.reset_subscription": {**NAMED, **ONE_START},
    "Admin.redrive": {**NAMED, "messages_max": (None, True, 1.0, -1, 2**32)},
    "Admin.unblock": NAMED,
    "Admin.drain": {"node_id": (None, True, 1.0, "1", -1), "undo": FLAG},
    "Admin.set_password": {"user": LABEL + USERNAME[3:-1], "password": (None, *PASSWORD[:-1])},
    "Admin.delete_user": {"user": LABEL},
    "Admin.create_token": {
        "principal": PRINCIPAL,
        "expires_in": TIMEOUT_OR_NONE,
        "expires_at": tuple(each for each in TIMESTAMP if not isinstance(each, datetime)),
        "description": TEXT,
    },
    "Admin.delete_token": {"token_id": LABEL},
    "Admin.list_acls": ACL_FIELDS,
    "Admin.create_acls": {"acls": (None, 1, "acl", b"acl", [], [1], [None], {"acl"}, ACL)},
    "Admin.delete_acls": ACL_FIELDS,
    "Admin.alter_quotas": {
        "quotas": (None, 1, "producer_byte_rate", [], {}, {1: 1}, {"producer_byte_rate": "fast"}),
        "user": (1, b"u"),
        "client_id": (1, b"u"),
        "ip": (1, b"u"),
        "topic": (1, b"u", ""),
        "validate_only": FLAG,
    },
    "AclEntry": {
        "resource_type": (None, *ACL_FIELDS["resource_type"]),
        "name": LABEL,
        "principal": PRINCIPAL,
        "operation": (None, *ACL_FIELDS["operation"]),
        "pattern_type": (None, *ACL_FIELDS["pattern_type"], "match"),
        "host": LABEL,
        "permission": (None, *ACL_FIELDS["permission"]),
    },
    "Payloads": {"topic": OPTIONAL_TOPIC, **CLIENT},
    "Payloads.upload": {"topic": OPTIONAL_TOPIC, "body": (None, *BYTES)},
    "Payloads.download": {"reference": (None, 1, "reference")},
    "Publisher": {
        "topic": OPTIONAL_TOPIC,
        **CLIENT,
        "compression": COMPRESSION,
        "inline_bytes_max": (None, True, 1.0, "1", -1),
    },
    "Publisher.send": PUBLISHED,
    "Publisher.submit": PUBLISHED,
    "Subscriber": {
        "topic": TOPIC,
        "subscription": LABEL,
        "consumer": (1, b"c", ["c"], SURROGATE),
        "prefetch": COUNT,
        "prefetch_bytes": COUNT,
        "value_bytes_max": COUNT,
        "metadata_only": FLAG,
        "create": SUBSCRIPTION_CONFIGS,
        **CLIENT,
    },
    "Subscriber.receive": {"wait": SECONDS},
    "Subscriber.run": {"handler": FUNCTION, "workers": COUNT},
    "Transaction.ack": {"delivery": (None, 1, b"ack")},
    "Transaction.publish": {
        **{name: PUBLISHED[name] for name in ("value", "key", "attributes")},
        "topic": TOPIC,
        "partition": (*PARTITION, -1, 2**32),
    },
    "Delivery.nack": {"delay": NUMBER_OF_SECONDS, "reason": (1, b"bad", ["bad"], ValueError("bad"))},
    "Delivery.extend": {"seconds": (None, *NUMBER_OF_SECONDS)},
    "Sent.result": {"timeout": SECONDS},
    "Acknowledgement.result": {"timeout": SECONDS},
}
"""By call and argument: values that are refused. The asyncio twin of a call refuses the same ones."""

RIGHT = {
    "topic": "t",
    "topics": "t",
    "subscription": "s",
    "name": "t",
    "user": "alice",
    "password": "p",
    "principal": "User:alice",
    "token_id": "abc",
    "acls": [ACL],
    "quotas": {"producer_byte_rate": 1},
    "resource_type": "topic",
    "operation": "read",
    "group": "g",
    "value": b"x",
    "values": [b"x"],
    "key": b"k",
    "body": b"x",
    "reference": PayloadReference("t", "", 1, 0),
    "timestamp_ms": 1,
    "seconds": 1.0,
    "before": 1,
    "config": {},
    "node_id": 1,
    "handler": print,
    "address": NOWHERE,
    "timeout": 0.05,
}
CLASSES = {
    "Producer": (Producer, AsyncProducer),
    "Consumer": (Consumer, AsyncConsumer),
    "Admin": (Admin, AsyncAdmin),
    "Payloads": (Payloads, AsyncPayloads),
    "Publisher": (Publisher, AsyncPublisher),
    "Subscriber": (Subscriber, AsyncSubscriber),
    "Transaction": (AsyncTransaction,),
    "Delivery": (Delivery, BaseDelivery),
    "Sent": (Sent,),
    "Acknowledgement": (Acknowledgement,),
    "AclEntry": (AclEntry,),
}
NO_ARGUMENTS = {
    "close",
    "flush",
    "abort",
    "commit",
    "positions",
    "list_topics",
    "list_groups",
    "list_users",
    "list_tokens",
    "list_quotas",
    "describe_broker",
    "cluster",
}
NO_ARGUMENTS |= {
    "rebalance",
    "pause",
    "resume",
    "start",
    "transaction",
    "done",
    "ack",
    "data",
    "settle",
    "set_result",
}
INSIDE = {
    "lend",
    "in_topic",
    "referring",
    "carried_bytes_max",
    "request",
    "conclude",
}
INSIDE |= {"take_as_acked", "set_exception"}
"""Of the library itself: they receive what was checked."""


REFUSALS = (TypeError, InvalidArgument, InvalidRecord, InvalidTopicName, InvalidPartitionCount)


def calls():
    for call, wrong in WRONG.items():
        owner, _, method = call.partition(".")
        for kind in CLASSES[owner]:
            for argument, values in wrong.items():
                if argument in _signature(kind, method).parameters:
                    yield pytest.param(
                        kind, method, argument, values, id=f"{kind.__name__}.{method or 'new'}-{argument}"
                    )


def _signature(kind, method):
    return inspect.signature(getattr(kind, method) if method else kind)


def made(kind):
    """A client without a broker: nothing is asked before the arguments are checked."""
    if kind is AsyncTransaction:
        return AsyncSubscriber("t", "s", address=NOWHERE, timeout=0.05).transaction()
    if kind in (Delivery, BaseDelivery):
        return kind(NoLink(), 0, 1, delivery(NoLink(), 1)._raw, 100.0)
    if kind in (Sent, Acknowledgement):
        return kind()
    return kind(**_needed(kind, ""))


def _needed(kind, method, **given):
    """The arguments that a call cannot do without, but for `self`, and an address without a broker."""
    parameters = _signature(kind, method).parameters
    needed = {
        name: RIGHT[name]
        for name, parameter in parameters.items()
        if name != "self"
        and name not in given
        and (parameter.default is parameter.empty or name in ("address", "timeout", "topic"))
    }
    if kind in (Sent, Acknowledgement):
        needed = {}
    return needed | given


async def _call(kind, method, named):
    if not method:
        return kind(**_needed(kind, "", **named))
    called = getattr(made(kind), method)(**_needed(kind, method, **named))
    return await called if inspect.isawaitable(called) else called


@pytest.mark.parametrize(("kind", "method", "argument", "values"), [*calls()])
async def test_a_wrong_argument_is_refused_at_the_call_and_named(kind, method, argument, values):
    for value in values:
        with pytest.raises(REFUSALS) as refused:
            await _call(kind, method, {argument: value})
        named = isinstance(refused.value, InvalidTopicName | InvalidPartitionCount)
        assert named or argument.removesuffix("s") in str(refused.value), (value, refused.value)


def test_the_table_knows_every_public_call_and_argument():
    """A call or argument that is added is added here."""
    for owner, kinds in CLASSES.items():
        for kind in kinds:
            for name, member in inspect.getmembers(kind, callable):
                if name.startswith("_") or name in NO_ARGUMENTS | INSIDE:
                    continue
                missing = set(inspect.signature(member).parameters) - {"self", *WRONG[f"{owner}.{name}"]}
                assert not missing, f"{kind.__name__}.{name}: {missing}"
            if owner in WRONG:
                arguments_of = set(inspect.signature(kind).parameters)
                assert arguments_of <= set(WRONG[owner]), kind


# -- one wrong message ------------------------------------------------------------------------------------------------


async def test_a_float_as_timestamp_fails_its_own_call_and_no_neighbour(setting):
    async with setting.producer("t") as producer:
        futures = [await producer.submit(b"%d" % number) for number in range(6)]
        with pytest.raises(
            TypeError, match=r"timestamp_ms must be an int, not float.*int\(time.time\(\) \* 1000\)"
        ):
            await producer.submit(b"a", timestamp_ms=time.time() * 1000)
        assert [(await future).number for future in futures] == [1, 2, 3, 4, 5, 6]
        assert (await producer.send(b"later")).number == 7


async def test_a_list_with_one_wrong_value_sends_none_of_them(setting):
    async with setting.producer("t") as producer:
        with pytest.raises(TypeError, match="value must be bytes, not int"):
            await producer.send_many([b"a", 1])
        assert (await producer.send(b"first")).number == 1


def test_values_may_be_a_generator():
    assert [record.value for record in records_of(value for value in (b"a", None))] == [b"a", None]


async def test_numbers_that_count_as_integers_are_accepted(setting):
    class Index:
        def __init__(self, value):
            self._value = value

        def __index__(self):
            return self._value

    async with setting.producer("t") as producer:
        now_ms = setting.clock.now_ms()
        assert (await producer.send(b"x", partition=Index(0), timestamp_ms=Index(now_ms))).number == 1
    async with setting.consumer("t") as consumer:
        assert (await consumer.poll()).messages[0].timestamp_ms == now_ms


async def test_headers_may_be_none_empty_or_pairs(setting):
    async with setting.producer("t") as producer:
        for headers in (None, (), [], {}, [["a", b"x"]], {"a": bytearray(b"x")}):
            await producer.send(b"x", headers=headers)


async def test_a_partition_that_does_not_exist_is_unknown(setting):
    await setting.create("t")
    async with setting.producer("t") as producer:
        for partition in (1, -1, 2**31, 2**70):
            with pytest.raises(UnknownPartition):
                await producer.send(b"x", partition=partition)
            async with setting.consumer("t", partition=partition) as consumer:
                with pytest.raises(UnknownPartition):
                    await consumer.poll()


# -- what the errors are ----------------------------------------------------------------------------------------------


def test_a_value_out_of_range_is_a_value_error_and_one_of_ours():
    with pytest.raises(
        InvalidArgument, match=r"^batch_bytes=0: expected an integer from 1 to \d+\.$"
    ) as refused:
        AsyncProducer("t", batch_bytes=0)
    assert isinstance(refused.value, ValueError)
    assert isinstance(refused.value, InvalidRequest)


def test_an_address_that_is_none_says_what_one_is():
    expected = (
        "^address='nonsense': expected host:port of a broker's gRPC listener, for example 127.0.0.1:9999.$"
    )
    for kind in (Producer, AsyncProducer, Consumer, AsyncConsumer):
        with pytest.raises(InvalidArgument, match=expected):
            kind("t", address="nonsense")


def test_a_wrong_value_is_shown_in_part():
    with pytest.raises(InvalidArgument) as refused:
        AsyncConsumer("t", read_from="x" * 10_000)
    assert len(str(refused.value)) < 400


async def test_a_position_is_given_once():
    with pytest.raises(
        InvalidArgument, match="offset=3: expected no read_from beside it, but read_from is 1"
    ):
        AsyncConsumer("t", read_from=1, offset=3)
    with pytest.raises(InvalidArgument, match="read_from=None: expected a message number from 1 on"):
        await AsyncConsumer("t", address=NOWHERE).seek()


@pytest.mark.parametrize("read_from", [{0: 1}, {"c": 1}, {"a": {"0": 1}}, {"a": 0}, {"a": "newest"}])
def test_positions_of_several_topics_are_given_by_topic(read_from):
    with pytest.raises((TypeError, InvalidArgument), match="read_from"):
        AsyncConsumer(["a", "b"], read_from=read_from)


def test_a_file_keeps_the_position_of_one_topic(tmp_path):
    with pytest.raises(InvalidArgument, match=r"position_file=.*expected one topic; use group= for several"):
        AsyncConsumer(["a", "b"], position_file=tmp_path / "at")


# -- where the broker is ---------------------------------------------------------------------------------------------


ALL_CLIENTS = [
    lambda **named: AsyncProducer("t", **named),
    lambda **named: AsyncConsumer("t", **named),
    lambda **named: AsyncAdmin(**named),
    lambda **named: AsyncPayloads(**named),
    lambda **named: AsyncSubscriber("t", "s", **named),
    lambda **named: AsyncPublisher(**named).producer,
    lambda **named: Producer("t", **named)._producer,
    lambda **named: Consumer("t", **named)._consumer,
    lambda **named: Admin(**named)._admin,
    lambda **named: Payloads(**named)._payloads,
    lambda **named: Subscriber("t", "s", **named)._subscriber,
    lambda **named: Publisher(**named)._publisher.producer,
]


@pytest.mark.parametrize("make", ALL_CLIENTS)
async def test_the_environment_says_where_the_broker_is_unless_the_call_does(make, monkeypatch):
    monkeypatch.setenv(ADDRESS_VARIABLE, "elsewhere:1,elsewhere:2")
    assert make()._connections.address == "elsewhere:1"
    assert make()._connections.next_known_address("elsewhere:1") == "elsewhere:2"
    assert make(address="here:1")._connections.address == "here:1"
    assert make(address=["here:1", "here:2"])._connections.next_known_address("here:1") == "here:2"
    monkeypatch.setenv(ADDRESS_VARIABLE, "")
    assert make()._connections.address == "127.0.0.1:9999"
    monkeypatch.delenv(ADDRESS_VARIABLE)
    assert make()._connections.address == "127.0.0.1:9999"


def test_a_wrong_variable_is_named(monkeypatch):
    monkeypatch.setenv(ADDRESS_VARIABLE, "nonsense")
    with pytest.raises(InvalidArgument, match=r"^MILLPOND_ADDRESS='nonsense': expected host:port"):
        AsyncProducer("t")


async def test_a_client_finds_its_broker_by_the_environment(setting, monkeypatch):
    monkeypatch.setenv(ADDRESS_VARIABLE, setting.address)
    async with AsyncProducer("t") as producer:
        assert (await producer.send(b"x")).number == 1
    assert await asyncio.to_thread(_read_one) == b"x"


def _read_one():
    with Consumer("t") as consumer:
        return consumer.poll(wait=30.0).messages[0].value
