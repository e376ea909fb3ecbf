"""Requests that are well-formed and make no sense: every field of every request at the ends of its range.

The broker answers or closes. What it may not do is log something nobody foresaw, hang, or forget the others.
"""

import socket

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.hostile.kafka.siege import Hung, written
from tests.hostile.kafka.test_damaged_frames import WAITING_KEYS

from millpond.frontends.kafka.registry import HANDLERS
from millpond.protocol import NO_UUID, decode, read_response_header
from millpond.protocol.primitives import TEXT_BYTES_MAX
from millpond.protocol.schema import Fixed, Sized, fields_in
from millpond.records import Record, build_batch

WAITING_SECONDS = 0.03
"""How long those are waited for that may rightly not answer."""
BITS = {"b": 8, "h": 16, "i": 32, "q": 64}

TEXTS = (
    *(
        "",
        "target",
        "group",
        "t" * 249,
        "t" * 250,
        "x" * TEXT_BYTES_MAX,
        ".",
        "..",
        "a/b",
        "a b",
        "\0",
        "\x7f",
    ),
    *(
        "ünï",
        "\U0001f4a3" * 5_000,
        "'; DROP TABLE topics; --",
        "%s%n",
        "None",
        "-1",
        "NaN",
        "1e309",
        "9" * 400,
    ),
    *(
        "retention.ms",
        "cleanup.policy",
        "compact",
        "max.message.bytes",
        "consumer",
        "range",
        "__consumer_offsets",
    ),
)
BATCH = build_batch([Record(b"value", key=b"key")])
PAYLOADS = (b"", b"\0", b"\xff" * 64, BATCH, BATCH[:-1], BATCH * 3, bytes(100_000))


def texts():
    return st.sampled_from(TEXTS) | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def numbers(bits):
    most = 2 ** (bits - 1) - 1
    return st.sampled_from([0, 1, 2, -1, -2, most, -most - 1, min(most, 1_000_000)]) | st.integers(
        -most - 1, most
    )


def values(spec, version):
    match spec.kind:
        case Fixed(format="?"):
            return st.booleans()
        case Fixed(format="16s"):
            return st.sampled_from([NO_UUID, b"\xff" * 16])
        case Fixed(format="d"):
            return st.floats()
        case Fixed():
            return numbers(BITS[spec.kind.format])
        case Sized.TEXT:
            return texts()
        case Sized():
            return st.sampled_from(PAYLOADS)
    return messages(spec.kind, version)


def fields(spec, version):
    made = values(spec, version)
    if spec.array:
        made = st.lists(made, max_size=3).flatmap(lambda few: st.sampled_from([few, few * 2]))  # and repeats
    if spec.nullable:
        made = st.none() | made
    return made if spec.tag is None else st.just(spec.default) | made


def messages(kind, version):
    return st.builds(kind, **{spec.name: fields(spec, version) for spec in fields_in(kind, version)})


def requests(kind):
    """(request, version)"""
    versions = range(kind.versions.first, kind.versions.last + 1)
    return st.sampled_from(versions).flatmap(
        lambda version: st.tuples(messages(kind, version), st.just(version))
    )


def ask(siege, kind, request, version):
    with siege.attacker() as client:
        client.send(written(request, version))
        if kind.api_key in WAITING_KEYS:
            client.socket.settimeout(WAITING_SECONDS)
        elif getattr(request, "acks", None) == 0:
            client.socket.shutdown(socket.SHUT_WR)
        try:
            answer = client.receive()
        except Hung:
            assert kind.api_key in WAITING_KEYS, "neither answered nor closed"
            return
    if answer is not None:
        _, position = read_response_header(answer, kind.api_key, version)
        decode(kind.response, version, answer, position)


def with_text(kind, version, text):
    """A message in which every text is this one, and there is one of everything."""

    def value(spec):
        match spec.kind:
            case Fixed(format="16s"):
                return b"\xff" * 16
            case Fixed():
                return 1
            case Sized.TEXT:
                return text
            case Sized():
                return BATCH
        return with_text(spec.kind, version, text)

    specs = fields_in(kind, version)
    return kind(**{spec.name: [value(spec)] if spec.array else value(spec) for spec in specs})


@pytest.mark.parametrize(
    "text", ["x" * TEXT_BYTES_MAX, "\0" * TEXT_BYTES_MAX, "\U000e0001" * (TEXT_BYTES_MAX // 4)]
)
def test_texts_as_long_as_they_may_be_are_answered(attacked_broker, text):
    """Errors quote what was sent, some characters of which take ten to be quoted; an answer has its limits, too."""
    with attacked_broker("long texts") as siege:
        for handler in HANDLERS.values():
            for version in (handler.request.versions.first, handler.request.versions.last):
                ask(siege, handler.request, with_text(handler.request, version, text), version)
                assert not siege.records.alarming(), (handler.request.__name__, siege.records.alarming())


@pytest.mark.parametrize("examples", [15, pytest.param(500, marks=pytest.mark.long)])
@pytest.mark.parametrize("key", sorted(HANDLERS), ids=lambda key: HANDLERS[key].request.__name__)
def test_a_request_that_makes_no_sense_is_answered_or_refused(attacked_broker, key, examples):
    kind = HANDLERS[key].request
    with attacked_broker(kind.__name__) as siege:
        siege.create_topic("target", partitions=2)

        @settings(
            max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck)
        )
        @given(requests(kind))
        def run(asked):
            ask(siege, kind, *asked)
            alarms = siege.records.alarming()
            siege.records.seen.clear()
            assert not alarms, alarms[:3]

        run()
