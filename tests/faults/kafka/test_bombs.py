"""Small or legal requests that claim much: counts, lengths, tags, and elements by the million."""

import struct

import pytest

from millpond.frontends.kafka.registry import HANDLERS
from millpond.protocol.primitives import uvarint
from tests.faults.kafka.siege import framed
from tests.unit.protocol.samples import written as sample

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


def test_a_count_a_length_or_a_tag_that_lies_at_any_place_is_harmless(besieged):
    """Every request in its first and last version, with each of its bytes the start of a huge number."""
    tried = 0
    with besieged("lies at every place") as siege:
        attacker = siege.attacker()
        for key, handler in HANDLERS.items():
            kind = handler.request
            for version in {kind.versions.first, kind.versions.last}:
                body = sample(kind, version)
                head = header(key, version, version in kind.flexible)
                places = range(len(body)) if len(body) < 40 else range(0, len(body), len(body) // 40)
                for place in places:
                    for lie in LIES:
                        tried += 1
                        frame = framed(head + body[:place] + lie + body[place + len(lie) :])
                        if not attacker.send(frame) or not _is_answered_or_open(attacker):
                            attacker.socket.close()
                            attacker = siege.attacker()
    assert tried > 1_000


def _is_answered_or_open(attacker):
    """Do not wait for a request that may rightly wait: only look whether it was refused."""
    attacker.socket.settimeout(0.001)
    try:
        return attacker.socket.recv(1 << 20) != b""
    except TimeoutError:
        return True
    except OSError:
        return False
    finally:
        attacker.socket.settimeout(30)


@pytest.mark.parametrize(
    "tags",
    [
        pytest.param(uvarint(2**32 - 1), id="four billion tags"),
        pytest.param(uvarint(1) + uvarint(0) + uvarint(2**32 - 1), id="a tag of four gibibytes"),
        pytest.param(b"\xff" * 10, id="an endless number of tags"),
        pytest.param(uvarint(5 * MIB) + b"\x63\0" * (5 * MIB), id="five million tags"),
    ],
)
def test_tags_that_claim_much_close_the_connection_soon(besieged, tags):
    with besieged("tags") as siege:
        for place in ("header", "body"):
            attacker = siege.attacker()
            head = struct.pack(">hhih", 3, 9, 1, -1)
            # Metadata v9: no topics, three flags, tags
            body = tags if place == "header" else b"\0" + b"\x01" + b"\0\0\0" + tags
            attacker.send(framed(head + body))
            assert attacker.is_closed(), place


def test_a_million_elements_are_the_most_there_can_be(besieged):
    """Metadata v0: a million empty names are two megabytes."""
    count = 1_000_001
    with besieged("a million and one topics") as siege:
        attacker = siege.attacker()
        attacker.send(framed(header(3, 0, flexible=False) + struct.pack(">i", count) + b"\0\0" * count))
        assert attacker.is_closed()
