"""A few thousand of the messages of `fuzz.py`, the same ones each time."""

from tests.hostile.security.fuzz import Fuzzer
from tests.unit.security.issuer import jwks

INPUTS = 6_000


async def test_damaged_messages_are_refused_and_raise_nothing_else(tmp_path):
    (tmp_path / "jwks.json").write_bytes(jwks())
    fuzzer = Fuzzer(19, str(tmp_path / "jwks.json"))
    await fuzzer.run(INPUTS)
    assert min(fuzzer.tried.values()) > 300, fuzzer.tried
    assert fuzzer.accepted["frame"] > 100, "some are well-formed"
    assert fuzzer.accepted["scram_first"] > 10
