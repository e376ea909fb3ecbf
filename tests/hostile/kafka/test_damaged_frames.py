"""What real clients sent, and what they might, with damage: the broker answers or closes, and nothing else happens."""

import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.hostile.kafka import composed, corpus
from tests.hostile.kafka.siege import framed

from millpond.frontends.kafka.registry import HANDLERS

FRAMES = corpus.load()
ALL = {**composed.load(), **FRAMES}
INTEGERS = (0, 1, -1, 2**31 - 1, -(2**31), 1 << 20)
WAITING_KEYS = {1, 11, 14}
"""Fetch, JoinGroup and SyncGroup may rightly wait longer than a test does."""


def test_the_corpus_holds_most_of_what_is_spoken():
    keys = {key for key, _ in FRAMES}
    assert len(FRAMES) >= 45
    assert len(keys & set(HANDLERS)) >= 20
    assert corpus.FILE.stat().st_size < 200_000


def test_what_real_clients_sent_is_answered(attacked_broker):
    """Not with success: topics and members are others now."""
    with attacked_broker("real requests") as siege:
        answered = 0
        for (key, version), frame in FRAMES.items():
            if key not in HANDLERS or version not in HANDLERS[key].request.versions or key in WAITING_KEYS:
                continue
            with siege.attacker() as client:
                client.send(framed(frame))
                assert client.receive()[:4] == frame[4:8], HANDLERS[key].request.__name__
                answered += 1
        assert answered > 30


def test_what_clients_might_send_is_answered(attacked_broker):
    with attacked_broker("composed requests") as siege:
        for (key, _), frame in composed.load().items():
            with siege.attacker() as client:
                client.send(framed(frame))
                assert client.receive()[:4] == frame[4:8], HANDLERS[key].request.__name__


# -- damage --------------------------------------------------------------------------------------------------------

places = st.floats(0, 1, exclude_max=True)


def at(frame, place):
    return int(place * len(frame))


def flip(frame, place, value):
    if frame:
        frame[at(frame, place)] ^= 1 << value % 8
    return frame


def cut(frame, place, value):
    return frame[: at(frame, place)]


def extend(frame, place, value):
    return frame + bytes([value % 256]) * (value % 3_000)


def overwrite(frame, place, value):
    """A number of four bytes, where a length or a count may be."""
    position = at(frame, place)
    frame[position : position + 4] = struct.pack(">i", INTEGERS[value % len(INTEGERS)])
    return frame


def insert(frame, place, value):
    position = at(frame, place)
    return frame[:position] + struct.pack(">I", value) + frame[position:]


def remove(frame, place, value):
    position = at(frame, place)
    return frame[:position] + frame[position + 1 + value % 16 :]


def splice(frame, place, value):
    """The end of another request."""
    other = sorted(ALL.items())[value % len(ALL)][1]
    return frame[: at(frame, place)] + other[at(other, place) :]


def change_key(frame, place, value):
    frame[0:2] = struct.pack(">h", sorted(HANDLERS)[value % len(HANDLERS)])
    return frame


def change_version(frame, place, value):
    frame[2:4] = struct.pack(">h", value % 20 - 2)
    return frame


DAMAGES = [flip, cut, extend, overwrite, insert, remove, splice, change_key, change_version]
damage = st.tuples(st.sampled_from(DAMAGES), places, st.integers(0, 2**32 - 1))
damaged = st.tuples(st.sampled_from(sorted(ALL)), st.lists(damage, min_size=1, max_size=3))


def apply(key, damages):
    frame = bytearray(ALL[key])
    for change, place, value in damages:
        if len(frame) >= 4:
            frame = change(frame, place, value)
    return bytes(frame)


def send_and_leave(siege, data):
    """Everything at once, then no more: the broker must close the connection, whatever it was."""
    with siege.attacker() as attacker:
        attacker.send(data)
        attacker.finish()
        assert attacker.is_closed()
    alarms = siege.records.alarming()
    assert not alarms, alarms


def fuzz(attacked_broker, title, strategy, made, examples):
    with attacked_broker(title) as siege:

        @settings(
            max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck)
        )
        @given(strategy)
        def run(value):
            send_and_leave(siege, made(value))

        run()


def as_frames(values):
    return b"".join(framed(apply(key, damages)) for key, damages in values)


noise = st.lists(st.binary(max_size=300), max_size=4)
some_damaged = st.lists(damaged, min_size=1, max_size=4)


@pytest.mark.parametrize("examples", [150, pytest.param(5_000, marks=pytest.mark.long)])
def test_damaged_requests_are_answered_or_refused(attacked_broker, examples):
    fuzz(attacked_broker, "damaged requests", some_damaged, as_frames, examples)


@pytest.mark.parametrize("examples", [100, pytest.param(5_000, marks=pytest.mark.long)])
def test_noise_in_frames_and_without_is_refused(attacked_broker, examples):
    fuzz(attacked_broker, "noise in frames", noise, lambda pieces: b"".join(map(framed, pieces)), examples)
    fuzz(attacked_broker, "noise without frames", noise, b"".join, examples)
