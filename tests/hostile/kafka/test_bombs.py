"""Small or legal requests that claim much: counts, lengths, tags, and elements by the million."""

import re
import struct

import pytest
from tests.hostile.kafka.siege import framed
from tests.unit.protocol.samples import written as sample

from millpond.frontends.kafka.registry import HANDLERS
from millpond.protocol.primitives import ELEMENTS_MAX, TAGS_MAX, uvarint

LIES = (
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xfe",
    b"\x80\0\0\0",
    b"\x7f\xff",
    b"\xff\xff\xff\xff\x0f",
    b"\xff" * 6,
)
MIB = 1 << 20


def header(key, version, flexible):
    return struct.pack(">hhih", key, version, 1, -1) + (b"\0" if flexible else b"")


def test_a_count_a_length_or_a_tag_that_lies_at_any_place_is_harmless(attacked_broker):
    """Every request in its first and last version, with many of its bytes the start of a huge number. What
    is asked for must not make sense, only do no harm."""
    tried = 0
    with attacked_broker("lies at every place") as siege:
        for key, handler in HANDLERS.items():
            kind = handler.request
            for version in {kind.versions.first, kind.versions.last}:
                body = sample(kind, version)
                head = header(key, version, version in kind.flexible)
                for place in range(0, len(body), max(1, len(body) // 12)):
                    frames = [framed(head + body[:place] + lie + body[place + len(lie) :]) for lie in LIES]
                    send_one_by_one(siege, frames)
                    tried += len(frames)
    assert tried > 500


def send_one_by_one(siege, frames):
    """Each on a connection of its own, all at the same time."""
    attackers = [siege.attacker() for _ in frames]
    for attacker, frame in zip(attackers, frames, strict=True):
        attacker.send(frame)
        attacker.finish()
    for attacker in attackers:
        assert attacker.is_closed()
        attacker.socket.close()


@pytest.mark.parametrize(
    "tags",
    [
        pytest.param(uvarint(2**32 - 1), id="four billion tags"),
        pytest.param(uvarint(1) + uvarint(0) + uvarint(2**32 - 1), id="a tag of four gibibytes"),
        pytest.param(b"\xff" * 10, id="an endless number of tags"),
        pytest.param(uvarint(5 * MIB) + b"\x63\0" * (5 * MIB), id="five million tags that are there"),
    ],
)
def test_tags_that_claim_much_close_the_connection_soon(attacked_broker, tags):
    with attacked_broker("tags") as siege:
        for place in ("header", "body"):
            attacker = siege.attacker()
            head = struct.pack(">hhih", 3, 9, 1, -1)
            # Metadata v9: no topics, three flags, tags
            body = tags if place == "header" else b"\0" + b"\x01" + b"\0\0\0" + tags
            attacker.send(framed(head + body))
            assert attacker.is_closed(), place
            assert re.search("tag|varint", siege.records.reasons()[-1]), place


def test_tags_of_many_elements_are_counted_together(attacked_broker):
    """Each of two thousand topics has as many tags as one may have."""
    tags = uvarint(TAGS_MAX) + b"\x63\0" * TAGS_MAX
    with attacked_broker("tags of many elements") as siege:
        attacker = siege.attacker()
        body = uvarint(2_001) + (b"\x02t" + tags) * 2_000 + b"\1\0\0\0"
        attacker.send(framed(header(3, 9, flexible=True) + body))
        assert attacker.is_closed()


def test_there_is_a_number_of_elements_that_is_too_many(attacked_broker):
    """Metadata v0: so many empty names."""
    count = ELEMENTS_MAX + 1
    with attacked_broker("too many topics") as siege:
        attacker = siege.attacker()
        attacker.send(framed(header(3, 0, flexible=False) + struct.pack(">i", count) + b"\0\0" * count))
        assert attacker.is_closed()
