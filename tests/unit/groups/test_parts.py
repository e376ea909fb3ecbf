"""The small parts: deadlines, snapshots, subscriptions."""

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.groups.conftest import subscription

from millpond.groups.classic.members import GroupMember, Protocol
from millpond.groups.classic.snapshot import Snapshot, decode_members, encode_members
from millpond.groups.consumer_protocol import assigned_partitions, subscribed_topics
from millpond.groups.deadlines import NamedDeadlines

members = st.builds(
    GroupMember,
    member_id=st.text(),
    client_id=st.text(),
    client_host=st.text(),
    session_timeout_ms=st.integers(),
    rebalance_timeout_ms=st.integers(),
    protocols=st.lists(st.builds(Protocol, st.text(), st.binary())).map(tuple),
    instance_id=st.none() | st.text(),
    assignment=st.binary(),
)


@given(st.lists(members, max_size=3).map(tuple), st.none() | st.text())
def test_a_snapshot_survives_being_stored(several, name):
    snapshot = Snapshot(7, "consumer", name, name, several)
    assert decode_members(7, "consumer", encode_members(snapshot)) == snapshot


def test_a_stored_snapshot_keeps_its_form():
    """Rows outlive the code that wrote them."""
    member = GroupMember(
        "m-1", "client", "/192.0.2.1", 10_000, 60_000, (Protocol("range", b"\x00"),), None, b"\x01"
    )
    assert json.loads(encode_members(Snapshot(1, "consumer", "range", "m-1", (member,)))) == {
        "protocol": "range",
        "leader": "m-1",
        "members": [
            {
                "id": "m-1",
                "instance": None,
                "client": "client",
                "host": "/192.0.2.1",
                "session_ms": 10_000,
                "rebalance_ms": 60_000,
                "protocols": [["range", "AA=="]],
                "assignment": "AQ==",
            }
        ],
    }


def test_deadlines_come_in_their_order_and_once():
    deadlines = NamedDeadlines()
    assert deadlines.next_ms() is None
    for name, due in (("c", 30), ("a", 10), ("b", 20)):
        deadlines.set(name, due)
    assert deadlines.next_ms() == 10
    assert list(deadlines.take_due(20)) == ["a", "b"]
    assert list(deadlines.take_due(20)) == []
    assert deadlines.next_ms() == 30


def test_a_deadline_can_move_both_ways_and_go():
    deadlines = NamedDeadlines()
    deadlines.set("later", 10)
    deadlines.set("later", 30)
    deadlines.set("earlier", 20)
    deadlines.set("earlier", 5)
    deadlines.set("gone", 1)
    deadlines.clear("gone")
    deadlines.clear("never there")
    assert list(deadlines.take_due(10)) == ["earlier"]
    assert list(deadlines.take_due(29)) == []
    assert list(deadlines.take_due(30)) == ["later"]
    assert deadlines.next_ms() is None


def test_heartbeats_do_not_pile_up():
    deadlines = NamedDeadlines()
    for now in range(1_000):
        deadlines.set("member", now + 10)
    assert len(deadlines._heap) == 1
    assert list(deadlines.take_due(1_008)) == []
    assert list(deadlines.take_due(1_009)) == ["member"]


def test_a_deadline_set_while_others_are_taken_is_seen():
    deadlines = NamedDeadlines()
    deadlines.set("a", 1)
    deadlines.set("b", 2)
    taken = []
    for name in deadlines.take_due(5):
        taken.append(name)
        if name == "a":
            deadlines.set("c", 3)
            deadlines.set("b", 9)
    assert taken == ["a", "c"]


def test_topics_of_all_members_are_read():
    assert subscribed_topics([]) == frozenset()
    said = [subscription("orders", "ünïcode"), subscription(), subscription("parcels", "orders")]
    assert subscribed_topics(said[1:]) == {"orders", "parcels"}


@pytest.mark.parametrize(
    "metadata",
    [
        b"",
        b"\x00\x00",
        struct.pack(">hi", 0, -1),
        struct.pack(">hi", 0, 2**31 - 1),
        struct.pack(">hih", 0, 1, -1),
        struct.pack(">hih", 0, 1, 5) + b"four",
        struct.pack(">hih", 0, 2, 1) + b"a",
        struct.pack(">hih", 0, 1, 1) + b"\xff",
    ],
)
def test_what_cannot_be_read_is_no_subscription(metadata):
    assert subscribed_topics([subscription("orders"), metadata]) is None


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(metadata):
    found = subscribed_topics([metadata])
    assert found is None or isinstance(found, frozenset)


def assignment(**partitions):
    """What a leader of Kafka consumers gives to one of them, under the protocol's first version."""
    topics = b"".join(
        struct.pack(">h", len(name))
        + name.encode()
        + struct.pack(f">{1 + len(numbers)}i", len(numbers), *numbers)
        for name, numbers in partitions.items()
    )
    return struct.pack(">hi", 0, len(partitions)) + topics + struct.pack(">i", -1)


def test_assigned_partitions_of_all_members():
    members = [assignment(orders=[0, 2], returns=[1]), assignment(orders=[1]), assignment(), b""]
    assert assigned_partitions(members) == {("orders", 0), ("orders", 1), ("orders", 2), ("returns", 1)}


@given(st.binary() | st.integers(-5, 40).map(lambda cut: assignment(orders=[0, 1], returns=[2])[:cut]))
def test_an_assignment_that_cannot_be_read_adds_nothing_and_breaks_nothing(content):
    found = assigned_partitions([content, assignment(orders=[7])])
    assert ("orders", 7) in found


@pytest.mark.parametrize("count", [-1, -(2**31), 2**31 - 1])
def test_counts_that_cannot_be_are_not_believed(count):
    named = struct.pack(">hihs", 0, 1, 1, b"t") + struct.pack(">i", count)
    assert assigned_partitions([named, struct.pack(">hi", 0, count)]) == set()
