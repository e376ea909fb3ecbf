"""Every error of the engine has a gRPC status, says in its details what it is, and arrives as itself at our client."""

import base64
import re
import urllib.parse

import grpc
import pytest
from tests.each import for_each
from tests.unit.frontends.rpc.wire import details_in, details_of, serving

from millpond.client.errors import BY_REASON, error_of_result
from millpond.frontends.rpc.errors import CODES, FACT_BYTES_MAX, code_of, reason_of, refusal_of, status_of
from millpond.model import errors
from millpond.model.errors import CannotStart, Defect, MillpondError, OffsetOutOfRange, UnknownTopic
from millpond.stubs import log_pb2

LEAVES = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, MillpondError) and not kind.__subclasses__()
]
BUGS = (Defect, CannotStart)
DAMAGE = (errors.Damaged, errors.ObjectMissing)
RETRIED = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.ABORTED, grpc.StatusCode.RESOURCE_EXHAUSTED}
"""What clients and proxies may try again, by the code alone."""
RETRY_AFTER_MS = 200
METADATA_BYTES_MAX = 8 * 1024 - 500
"""Up to here gRPC takes all there is; beyond it refuses some, by chance. Other headers come with it."""


def details(error):
    return details_in(status_of(refusal_of(error), RETRY_AFTER_MS))


@for_each("kind", LEAVES)
def test_every_leaf_is_mapped_by_itself_or_its_family_and_not_by_the_root(kind):
    assert next(each for each in kind.__mro__ if each in CODES) is not MillpondError


@for_each("kind", LEAVES)
def test_only_bugs_are_internal_and_only_damage_is_data_loss(kind):
    code = code_of(kind())
    assert (code is grpc.StatusCode.INTERNAL) == issubclass(kind, BUGS)
    assert (code is grpc.StatusCode.DATA_LOSS) == issubclass(kind, DAMAGE)
    assert code is not grpc.StatusCode.UNKNOWN


@for_each("kind", LEAVES)
def test_the_details_say_what_it_is_and_whether_to_try_again(kind):
    status, info, retry = details(kind())
    assert (info.domain, info.reason) == ("millpond", reason_of(kind()))
    assert status.code == code_of(kind()).value[0]
    assert status.message == str(kind())
    assert (retry is not None) == kind.retriable
    if retry is not None:
        assert retry.retry_delay.ToMilliseconds() == RETRY_AFTER_MS


@for_each("kind", [kind for kind in LEAVES if kind.retriable and not issubclass(kind, errors.Fenced)])
def test_what_may_succeed_later_has_a_code_that_is_tried_again(kind):
    assert code_of(kind()) in RETRIED


@for_each("kind", LEAVES)
def test_our_client_makes_the_same_error_of_it(kind):
    """The same reason in a status and in a result of a stream."""
    refusal = refusal_of(kind())
    result = log_pb2.Error(code=1, reason=refusal.reason, message=refusal.message)
    assert type(error_of_result(result)) is kind
    assert str(error_of_result(result)) == str(kind())


def test_reasons_are_unique():
    assert len({reason_of(kind()) for kind in LEAVES}) == len(LEAVES)
    assert {reason_of(kind()) for kind in LEAVES} <= set(BY_REASON)


def test_out_of_range_tells_both_bounds_as_message_numbers():
    status, info, _ = details(OffsetOutOfRange(offset=9, log_start=2, end_offset=5))
    assert dict(info.metadata) == {"read_from": "10", "oldest": "3", "next": "6"}
    assert status.message == "Message 10 is outside the retained range 3 to 6."


def test_facts_are_bounded_and_always_text():
    """They travel in metadata, of which a client takes 8 KiB."""
    refusal = refusal_of(UnknownTopic(topic="\U0001f4a3" * 10_000))
    assert len(refusal.facts["topic"].encode()) <= FACT_BYTES_MAX
    assert len(refusal.message) < 1_000
    assert refusal_of(UnknownTopic(topic="\ud800")).facts["topic"].encode()


async def test_a_call_carries_its_details_over_the_wire():
    async with serving() as (_, wire):
        await wire.produce("topic", b"1", b"2")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await wire.poll("topic", 9, strict=True)
        assert refused.value.code() is grpc.StatusCode.OUT_OF_RANGE
        _, info, retry = details_of(refused.value)
        assert dict(info.metadata) == {"read_from": "9", "oldest": "1", "next": "3"}
        assert retry is None


async def test_what_nobody_foresaw_is_internal_and_keeps_its_text_to_itself(monkeypatch, caplog):
    async with serving() as (broker, wire):

        async def fail(*_, **__):
            raise ZeroDivisionError("a secret")

        monkeypatch.setattr(broker.messages, "submit", fail)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await wire.produce("topic", b"x")
    assert refused.value.code() is grpc.StatusCode.INTERNAL
    assert "secret" not in refused.value.details()
    assert "unexpected error in gRPC request" in caplog.messages


@pytest.mark.parametrize("length", [249, 250, 3_000, 100_000])
@pytest.mark.parametrize("letter", ["x", "\0", "\n", "é", "\U0001f4a3", "\u202e"], ids=ascii)
async def test_a_name_of_any_length_and_letters_gets_a_whole_answer(letter, length):
    """What is quoted in a status must fit a header: clients break off a call whose metadata is too large."""
    async with serving() as (_, wire):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await wire.poll(letter * length)
        assert refused.value.code() in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INVALID_ARGUMENT)
        assert details_of(refused.value)[1].reason in ("UNKNOWN_TOPIC", "INVALID_TOPIC_NAME")


@pytest.mark.parametrize("letter", ["x", "\0", "é", "\U0001f4a3"], ids=ascii)
@for_each("kind", LEAVES)
def test_a_refusal_fits_the_metadata_that_every_client_takes(kind, letter):
    """As it travels: the message percent-encoded, the details in base64."""
    names = re.findall(r"\{(\w+)", kind.__doc__)
    refusal = refusal_of(
        kind(**dict.fromkeys(names, letter * 10_000)) if kind is not OffsetOutOfRange else kind()
    )
    message = urllib.parse.quote(refusal.message, safe="")
    details = base64.b64encode(status_of(refusal, RETRY_AFTER_MS))
    assert len(message) + len(details) < METADATA_BYTES_MAX
