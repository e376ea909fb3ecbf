"""Passwords as they are: the message of PLAIN, and checks that cost the same for every user."""

import asyncio
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.security.proofs import SHA_256, SHA_512, Clock, Users, counting_bytes, credential

from millpond.model.errors import AuthenticationFailed, Overloaded
from millpond.security import plain, scram
from millpond.security.plain import PasswordChecker, parse_plain

ITERATIONS = 4096
ALICE = credential(iterations=ITERATIONS)


class Derivations:
    """Counts derivations, and says on which thread they ran."""

    def __init__(self, monkeypatch):
        self.made = []
        self.threads = set()
        self._real = scram.derive
        monkeypatch.setattr(scram, "derive", self)

    def __call__(self, password, salt, iterations, mechanism):
        self.made.append((mechanism, iterations))
        self.threads.add(threading.get_ident())
        return self._real(password, salt, iterations, mechanism)

    def taken(self):
        made, self.made = self.made, []
        return made


@pytest.fixture
def derivations(monkeypatch):
    return Derivations(monkeypatch)


async def at_once(work):
    return work()


def checker(users, *, clock=None, off_loop=at_once, iterations=ITERATIONS):
    return PasswordChecker(
        users, clock=clock or Clock(), iterations=iterations, off_loop=off_loop, random=counting_bytes
    )


async def is_refused(checks, user="alice", password="pencil"):
    with pytest.raises(AuthenticationFailed):
        await checks.check(user, password)
    return True


# -- messages -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\0alice\0pencil", ("alice", "pencil")),
        (b"alice\0alice\0pencil", ("alice", "pencil")),
        (b"\0alice\0p\xc3\xa4ss", ("alice", "päss")),
        (b"\0a:b\0c:d", ("a:b", "c:d")),
    ],
)
def test_a_message_has_a_user_and_a_password(data, expected):
    assert parse_plain(data) == expected


@pytest.mark.parametrize(
    "data",
    [
        *[
            b"",
            b"\0",
            b"\0\0",
            b"\0alice",
            b"alice\0pencil",
            b"\0alice\0",
            b"\0\0pencil",
            b"\0alice\0pencil\0",
        ],
        *[
            b"bob\0alice\0pencil",
            b"Alice\0alice\0pencil",
            b"*\0alice\0pencil",
            b"\0alice\0\xff",
            b"\xff\0a\0b",
        ],
        b"\0alice\0" + 5000 * b"x",
    ],
)
def test_another_message_fails(data):
    with pytest.raises(AuthenticationFailed):
        parse_plain(data)


@given(st.binary(max_size=60))
def test_random_bytes_parse_or_fail(data):
    try:
        user, password = parse_plain(data)
    except AuthenticationFailed:
        return
    assert data.split(b"\0")[1:] == [user.encode(), password.encode()]


def test_a_parsed_password_is_not_printed():
    assert "pencil" not in repr(parse_plain(b"\0alice\0pencil"))


# -- checks ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
async def test_a_password_is_that_of_a_stored_credential(mechanism):
    stored = credential(mechanism=mechanism)
    assert await checker(Users(stored)).check("alice", "pencil") == stored


async def test_a_user_with_two_credentials_may_use_the_password_of_either():
    one, two = credential(password="one", mechanism=SHA_256), credential(password="two", mechanism=SHA_512)
    checks = checker(Users(one, two))
    assert await checks.check("alice", "one") == one
    assert await checks.check("alice", "two") == two
    assert await is_refused(checks, password="three")


@pytest.mark.parametrize(
    ("user", "password"),
    [
        *[
            ("alice", "Pencil"),
            ("alice", ""),
            ("alice", "pencil\0"),
            ("alice", "x" * 1025),
            ("alice", "\ud800"),
        ],
        *[("bob", "pencil"), ("", "pencil"), ("Alice", "pencil"), ("alice ", "pencil"), ("älice", "pencil")],
    ],
)
async def test_another_password_or_user_fails(user, password):
    assert await is_refused(checker(Users(ALICE)), user, password)


@given(st.text(max_size=12), st.text(max_size=12))
async def test_no_other_pair_succeeds(user, password):
    if (user, password) != ("alice", "pencil"):
        assert await is_refused(checker(Users(ALICE)), user, password)


@pytest.mark.parametrize(
    "stored",
    [
        (),
        (ALICE,),
        (credential(mechanism=SHA_512),),
        (ALICE, credential(mechanism=SHA_512)),
        (credential(iterations=5000), credential(mechanism=SHA_512, iterations=6000)),
    ],
)
async def test_every_user_costs_the_same(derivations, stored):
    """Also when some have more iterations than the default."""
    many = [credential("carol", mechanism=each, iterations=9000) for each in (SHA_256, SHA_512)]
    derivations.taken()
    for more, cost in (([], 8192), (many, 9000)):
        checks = checker(Users(*stored, *more), iterations=8192)
        for user in ("alice", "bob", "carol"):
            assert await is_refused(checks, user, "wrong")
            spent = {SHA_256: 0, SHA_512: 0}
            for mechanism, iterations in derivations.taken():
                spent[mechanism] += iterations
            assert spent == {SHA_256: cost, SHA_512: cost}


async def test_an_unknown_user_fails_even_with_the_keys_of_its_decoy(monkeypatch):
    monkeypatch.setattr(plain, "_is_fitting", lambda *_: True)
    assert await is_refused(checker(Users(ALICE)), "bob")


async def test_derivations_do_not_run_on_the_loop(derivations):
    checks = checker(Users(ALICE), off_loop=asyncio.to_thread)
    await checks.check("alice", "pencil")
    assert derivations.threads
    assert threading.get_ident() not in derivations.threads


# -- what is remembered ---------------------------------------------------------------------------------------


async def test_a_success_is_remembered_for_a_minute(derivations):
    clock = Clock()
    checks = checker(Users(ALICE), clock=clock)
    await checks.check("alice", "pencil")
    assert derivations.taken()
    clock.ms += 59_999
    assert await checks.check("alice", "pencil") == ALICE
    assert derivations.taken() == []
    clock.ms += 1
    assert await checks.check("alice", "pencil") == ALICE
    assert derivations.taken()


async def test_a_use_does_not_prolong_it(derivations):
    clock = Clock()
    checks = checker(Users(ALICE), clock=clock)
    for _ in range(4):
        await checks.check("alice", "pencil")
        clock.ms += 20_000
    assert len(derivations.taken()) == 2 * 2


async def test_a_failure_is_not_remembered(derivations):
    checks = checker(Users(ALICE))
    assert await is_refused(checks, password="wrong")
    derivations.taken()
    assert await is_refused(checks, password="wrong")
    assert derivations.taken()


async def test_what_is_remembered_is_for_this_user_and_this_password(derivations):
    checks = checker(Users(ALICE, credential("alic", "epencil2")))
    await checks.check("alice", "pencil")
    assert await is_refused(checks, "alic", "pencil")
    assert await is_refused(checks, "bob", "pencil")
    assert await is_refused(checks, "alic", "epencil")
    assert await is_refused(checks, "alice", "pencil2")
    assert await is_refused(checks, "alicep", "encil")


async def test_a_changed_password_is_forgotten_at_once():
    users = Users(ALICE)
    checks = checker(users)
    await checks.check("alice", "pencil")
    users.credentials["alice", SHA_256] = credential(password="new", version=2)
    assert await is_refused(checks)
    assert (await checks.check("alice", "new")).version == 2


async def test_a_credential_that_was_stored_again_is_checked_again(derivations):
    users = Users(ALICE)
    checks = checker(users)
    await checks.check("alice", "pencil")
    derivations.taken()
    users.credentials["alice", SHA_256] = ALICE._replace(version=2)
    assert (await checks.check("alice", "pencil")).version == 2
    assert derivations.taken()


async def test_a_deleted_user_is_forgotten_at_once():
    users = Users(ALICE)
    checks = checker(users)
    await checks.check("alice", "pencil")
    users.credentials.clear()
    assert await is_refused(checks)


async def test_a_bounded_number_is_remembered(monkeypatch, derivations):
    monkeypatch.setattr(plain, "REMEMBERED_MAX", 2)
    users = Users(*(credential(name, name) for name in "abc"))
    checks = checker(users)
    for name in "abc":
        await checks.check(name, name)
    derivations.taken()
    await checks.check("c", "c")
    await checks.check("b", "b")
    assert derivations.taken() == []
    await checks.check("a", "a")
    assert derivations.taken()


async def test_no_password_is_kept():
    checks = checker(Users(ALICE))
    await checks.check("alice", "pencil")
    assert "pencil" not in repr(vars(checks))


# -- load -----------------------------------------------------------------------------------------------------


class Held:
    """Runs nothing until it is released."""

    def __init__(self):
        self.running = 0
        self.most = 0
        self.released = asyncio.Event()

    async def __call__(self, work):
        self.running += 1
        self.most = max(self.most, self.running)
        await self.released.wait()
        self.running -= 1
        return work()


async def test_a_client_that_gives_up_makes_no_room_for_more_derivations():
    """A thread cannot be interrupted: it counts until it has ended."""
    held = Held()
    checks = checker(Users(ALICE), off_loop=held)
    tasks = [asyncio.create_task(checks.check("alice", "pencil")) for _ in range(5)]
    while held.running < plain.CHECKS_MAX:
        await asyncio.sleep(0)
    for task in tasks[:3]:
        task.cancel()
    await asyncio.gather(*tasks[:3], return_exceptions=True)
    for _ in range(10):
        await asyncio.sleep(0)
    assert held.running == plain.CHECKS_MAX
    held.released.set()
    assert await asyncio.gather(*tasks[3:]) == [ALICE] * 2
    assert held.most == plain.CHECKS_MAX


async def test_few_checks_run_and_a_bounded_number_wait(monkeypatch):
    monkeypatch.setattr(plain, "WAITING_MAX", 5)
    held = Held()
    checks = checker(Users(ALICE), off_loop=held)
    tasks = [asyncio.create_task(checks.check("alice", "pencil")) for _ in range(5)]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded):
        await checks.check("alice", "pencil")
    while held.running < plain.CHECKS_MAX:
        await asyncio.sleep(0)
    held.released.set()
    assert await asyncio.gather(*tasks) == [ALICE] * 5
    assert held.most == plain.CHECKS_MAX
    assert await is_refused(checks, password="wrong"), "there is room again"


async def test_one_address_does_not_fill_the_queue(monkeypatch):
    """A whole network of IPv6 is one address."""
    monkeypatch.setattr(plain, "WAITING_PER_ADDRESS_MAX", 3)
    held = Held()
    checks = checker(Users(ALICE), off_loop=held)
    flood = [
        asyncio.create_task(checks.check("alice", "wrong", f"2001:db8::{number}")) for number in range(20)
    ]
    await asyncio.sleep(0)
    assert sum(each.done() for each in flood) == 17
    other = asyncio.create_task(checks.check("alice", "pencil", "2001:db8:0:1::1"))
    while held.running < plain.CHECKS_MAX:
        await asyncio.sleep(0)
    held.released.set()
    assert await other == ALICE
    errors = await asyncio.gather(*flood, return_exceptions=True)
    assert [type(each) for each in errors] == 3 * [AuthenticationFailed] + 17 * [Overloaded]
    with pytest.raises(AuthenticationFailed):
        await checks.check("alice", "wrong", "2001:db8::1")
    assert not checks._waiting, "addresses without checks take no memory"
