"""Requests that are well-formed and make no sense: every field of every request at the ends of its range.

Each is answered or refused, with a status that somebody foresaw; and so are the same bytes when some are changed.
"""

import math
import random
import uuid

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.hostile.rpc.siege import METHODS, request_of

from millpond.records import Record, build_batch
from millpond.stubs import admin_pb2, log_pb2

WAITING = ("Log.Poll", "Log.Consume", "Queue.Subscribe")
WAITING_SECONDS = 0.1
"""How long those are waited for that may rightly not answer."""
MANY = 100_000
TEXTS = (
    *("", "target", "group", "t" * 249, "t" * 250, "x" * 40_000, ".", "..", "a/b", "a b", "\0", "\x7f"),
    *("ünï", "\U0001f4a3" * 5_000, "'; DROP TABLE topics; --", "%s%n", "None", "-1", "NaN", "1e309"),
    *("9" * 400, "retention.ms", "cleanup.policy", "compact", "max.message.bytes", "__consumer_offsets"),
)
BATCH = build_batch([Record(b"value", key=b"key")])
PAYLOADS = (
    *(
        b"",
        b"\0",
        b"\xff" * 64,
        BATCH,
        BATCH[:-1],
        BATCH * 3,
        bytes(100_000),
        BATCH[:16] + b"\x01" + BATCH[17:],
    ),
    build_batch([Record(b"x")], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True),
    build_batch([Record(b"x")], producer_id=2**62, producer_epoch=2**15 - 1, base_sequence=2**31 - 1),
    build_batch([Record(b"x", timestamp=2**62)]),
)
INTEGERS = {
    FieldDescriptor.TYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_UINT64: (0, 2**64 - 1),
    FieldDescriptor.TYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.TYPE_ENUM: (0, 2**31 - 1),
}
DOUBLES = (0.0, -0.0, -1.0, 0.5, 5e-324, 2.0**53, 2.0**53 + 2, 2.0**63, 1e308, math.inf, -math.inf, math.nan)


def numbers(least, most):
    telling = {least, least + 1, most, most - 1, 0, 1, 2, most // 2, most // 2 + 1, most // 2 + 2}
    return st.sampled_from(sorted(telling)) | st.integers(least, most)


def values(field):
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        return messages(field.message_type)
    if field.type == FieldDescriptor.TYPE_STRING:
        return st.sampled_from(TEXTS) | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return st.sampled_from(PAYLOADS)
    if field.type == FieldDescriptor.TYPE_BOOL:
        return st.booleans()
    if field.type == FieldDescriptor.TYPE_DOUBLE:
        return st.sampled_from(DOUBLES) | st.floats()
    return numbers(*INTEGERS[field.type])


def fields(field):
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        return st.dictionaries(values(key), values(value), max_size=3)
    if field.is_repeated:
        return st.lists(values(field), max_size=3).flatmap(lambda few: st.sampled_from([few, few * 2]))
    return values(field)


def messages(descriptor):
    """Dictionaries, of which protobuf makes messages."""
    return st.fixed_dictionaries({}, optional={field.name: fields(field) for field in descriptor.fields})


def seconds_for(name):
    return {"seconds": WAITING_SECONDS} if name in WAITING else {}


def damaged(data, seed):
    """With some bytes flipped, dropped, doubled or cut."""
    chance, broken = random.Random(seed), bytearray(data)
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(broken) + 1)
        match chance.randrange(4):
            case 0:
                broken[place : place + 1] = bytes([chance.randrange(256)])
            case 1:
                del broken[place : place + chance.randint(1, 8)]
            case 2:
                broken[place:place] = broken[max(0, place - 8) : place]
            case 3:
                del broken[place:]
    return bytes(broken)


def attack(client, name, examples):
    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(messages(METHODS[name].input_type), st.integers())
    def run(given, seed):
        data = request_of(name)(**given).SerializeToString()
        client.ask(name, data, **seconds_for(name))
        client.ask(name, damaged(data, seed), **seconds_for(name))

    run()


@pytest.mark.parametrize("examples", [12, pytest.param(500, marks=pytest.mark.long)])
def test_a_request_that_makes_no_sense_is_answered_or_refused(attacked_broker, examples):
    with attacked_broker("absurd values") as siege:
        siege.create_topic("target", partitions=2)
        for name in METHODS:
            attack(siege.attacker(), name, examples)
            siege.good.prove()
            assert not siege.alarms(), (name, siege.alarms())


NO_REQUESTS = {
    "ones": b"\xff" * 100,
    "a length beyond the end": b"\x0a\xff\xff\xff\xff\x0f",
    "bad UTF-8": b"\x0a\x02\xc3\x28",
    "cut": b"\x08",
    "zeros": bytes(50),
    "JSON": b"{}",
    "nested groups": b"\x0b" * 10_000,
}


def test_bytes_that_are_no_request_are_an_invalid_argument(attacked_broker):
    """Of every method. One whose request has no fields takes what it does not know, if it is well-formed."""
    with attacked_broker("no protobuf") as siege:
        client = siege.attacker()
        for case, data in NO_REQUESTS.items():
            statuses = {name: client.ask(name, data, **seconds_for(name))[0] for name in METHODS}
            for name in ("Log.Produce", "Log.ProduceStream", "MiniKafka.Produce"):
                assert statuses[name] is grpc.StatusCode.INVALID_ARGUMENT, (case, name)


def produce(*messages, **fields):
    return "Log.Produce", log_pb2.ProduceRequest(topic="target", messages=messages, **fields)


def commit(**read_from):
    positions = {int(name[1:]): number for name, number in read_from.items()}
    return "Admin.CommitPositions", admin_pb2.CommitPositionsRequest(
        group="group", topic="target", read_from=positions
    )


def heartbeat(epoch=0, **fields):
    given = {"group": "group", "member_id": "m", "member_epoch": epoch, "owned": {}}
    join = {} if epoch else {"topics": ["target"], "rebalance_timeout_ms": 60_000}
    return "Admin.GroupHeartbeat", admin_pb2.GroupHeartbeatRequest(**given | join | fields)


def owned(*partitions):
    return {"topics": [admin_pb2.TopicPartitions(topic_id=str(uuid.UUID(int=1)), partitions=partitions)]}


TAKEN = {"headers", "many messages", "the first time", "the last time"}
"""What is absurd and allowed."""
HEADERS = [log_pb2.Header(name="h", value=b"v")] * MANY
NEW = log_pb2.NewMessage
ABSURD = {
    "headers": produce(NEW(value=b"x", headers=HEADERS)),
    "a header with a name of a mebibyte": produce(NEW(headers=[log_pb2.Header(name="h" * 2**20)])),
    "the last timestamp": produce(NEW(value=b"x", timestamp_ms=2**63 - 1)),
    "timestamps far apart": produce(NEW(timestamp_ms=0), NEW(timestamp_ms=2**63 - 1), NEW(timestamp_ms=5)),
    "many messages": produce(*[NEW(value=b"")] * 10_000),
    "too many messages": produce(*[NEW(value=b"")] * MANY),
    "the last partition": produce(NEW(value=b"x"), partition=2**32 - 1),
    "messages and a batch": produce(NEW(value=b"x"), partition=0, batch=BATCH),
    "the largest position": commit(p0=2**64 - 1),
    "a position past signed": commit(p0=2**63 + 1),
    "position 0": commit(p0=0),
    "a position of no partition": commit(p4294967295=1),
    "a member id of a mebibyte": heartbeat(member_id="m" * 2**20),
    "a member of many topics": heartbeat(topics=["target"] * MANY),
    "the largest epoch of a member": heartbeat(2**31 - 1),
    "the smallest epoch of a member": heartbeat(-(2**31)),
    "a member that joins and owns": heartbeat(owned=owned(2**32 - 1)),
    "a member that owns much": heartbeat(1, owned=owned(*range(MANY))),
    "a topic of 4 billion partitions": (
        "Admin.CreateTopic",
        admin_pb2.CreateTopicRequest(name="large", partitions=2**32 - 1),
    ),
    "delete up to the largest": (
        "Admin.DeleteMessages",
        admin_pb2.DeleteMessagesRequest(topic="target", before=2**64 - 1),
    ),
    "the first time": (
        "Admin.FindByTime",
        admin_pb2.FindByTimeRequest(topic="target", timestamp_ms=-(2**63)),
    ),
    "the last time": (
        "Admin.FindByTime",
        admin_pb2.FindByTimeRequest(topic="target", timestamp_ms=2**63 - 1),
    ),
    "a poll of one partition many times": (
        "Log.Poll",
        log_pb2.PollRequest(topic="target", positions=[log_pb2.Position(read_from=1)] * MANY),
    ),
    "a poll from the largest position": (
        "Log.Poll",
        log_pb2.PollRequest(topic="target", strict=True, positions=[log_pb2.Position(read_from=2**64 - 1)]),
    ),
}


def test_what_is_absurd_in_one_way_is_answered_or_refused(attacked_broker):
    with attacked_broker("absurd in one way") as siege:
        siege.create_topic("target")
        client = siege.attacker(("grpc.max_send_message_length", -1))
        statuses = {}
        for case, (name, request) in ABSURD.items():
            statuses[case] = client.ask(name, request.SerializeToString())[0]
            assert client.ask("Log.Poll", log_pb2.PollRequest(topic="target").SerializeToString())[1], case
            siege.good.prove()
    assert {case for case, status in statuses.items() if status is grpc.StatusCode.OK} == TAKEN
