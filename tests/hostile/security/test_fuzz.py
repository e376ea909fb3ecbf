"""A few thousand random and damaged SASL and ACL messages: those that `fuzz.py` makes from one seed, so that each run
tries the same ones. Each is read, or refused with an error that clients can receive."""

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
