"""The identity provider's description: when it is loaded, and who waits for it."""

import asyncio
import json

import pytest
from tests.unit.security.proofs import Clock

from millpond.model.errors import IdentityProviderUnavailable
from millpond.security import oidc
from millpond.security.oidc import IdentityProvider
from millpond.security.oidc_settings import OidcSettings

ISSUER = "https://issuer.example"
DESCRIPTION = {
    "issuer": ISSUER,
    "authorization_endpoint": f"{ISSUER}/authorize",
    "token_endpoint": f"{ISSUER}/token",
    "jwks_uri": f"{ISSUER}/keys",
}


class Slow:
    """A provider whose responses take `RETRY_MS`, and wait until the event is set."""

    def __init__(self, monkeypatch):
        self.clock = Clock()
        self.released = asyncio.Event()
        self.asked = 0
        self.fails = False
        monkeypatch.setattr(oidc, "read_url", lambda *_: self.read())
        settings = OidcSettings(ISSUER, "client", "secret")
        self.provider = IdentityProvider(settings, clock=self.clock, off_loop=self.off_loop)

    async def off_loop(self, work):
        self.asked += 1
        await self.released.wait()
        self.clock.ms += oidc.RETRY_MS
        return work()

    def read(self):
        if self.fails:
            raise OSError("away")
        return json.dumps(DESCRIPTION).encode()

    async def begins(self):
        try:
            await self.provider.begin("https://broker", next_path="/", failed_path="")
        except IdentityProviderUnavailable:
            return False
        return True


@pytest.fixture
def slow(monkeypatch):
    return Slow(monkeypatch)


async def test_everyone_who_waits_for_a_load_that_fails_fails_with_it(slow):
    slow.fails = True
    waiting = [asyncio.create_task(slow.begins()) for _ in range(50)]
    await asyncio.sleep(0)
    waiting[0].cancel()  # the browser has gone
    slow.released.set()
    assert (await asyncio.gather(*waiting[1:]), slow.asked) == (49 * [False], 1)
    slow.fails = False
    slow.clock.ms += oidc.RETRY_MS - 1
    assert (await slow.begins(), slow.asked) == (False, 1)
    slow.clock.ms += 1
    assert (await asyncio.gather(slow.begins(), slow.begins()), slow.asked) == ([True, True], 2)


async def test_while_the_description_is_loaded_again_the_last_one_is_used(slow):
    slow.released.set()
    assert await slow.begins()
    slow.released.clear()
    slow.clock.ms += oidc.METADATA_MS
    first = asyncio.create_task(slow.begins())
    for _ in range(2):  # the load has its own task
        await asyncio.sleep(0)
    assert [await slow.begins() for _ in range(3)] == [True, True, True]
    assert (first.done(), slow.asked) == (False, 2)
    slow.fails = True
    slow.released.set()
    assert await first
    assert (await slow.begins(), slow.asked) == (True, 2)
