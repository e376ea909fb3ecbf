"""Sessions of browsers: when they end, how many there are, and the version that their ends raise."""

from tests.each import for_each

from millpond.catalog import security, sessions
from millpond.catalog.security import ApiToken, ScramCredential
from millpond.catalog.sessions import IDLE_MS, StoredSession

NOW, LATER = 1_000_000, 5_000_000_000
MECHANISM = "SCRAM-SHA-256"
CREDENTIAL = ScramCredential("alice", MECHANISM, b"salt", b"stored", b"server", 4096)
TOKEN = ApiToken("abc", b"digest", "User:alice", None, 17, "User:admin")


def session(number, principal="User:alice", *, credential="oidc:issuer", created=NOW, expires=LATER):
    return StoredSession(
        b"\0\xff" + bytes([number]), principal, credential, 7, created + number, created + number, expires
    )


def kept(catalog):
    return [each.digest[-1] for each in catalog.read(sessions.read)[1]]


def version(catalog):
    return catalog.read(sessions.version)


def test_a_session_is_found_as_it_was_added_until_it_ends(catalog):
    first, second = session(1), session(2)
    for each in (first, second):
        catalog.write(sessions.add, each)
    before = version(catalog)
    assert catalog.read(sessions.find, first.digest) == (before, first)
    assert catalog.read(sessions.read) == (before, [first, second])
    assert catalog.write(sessions.end, first.digest)
    assert catalog.read(sessions.find, first.digest) == (before + 1, None)
    assert not catalog.write(sessions.end, first.digest)
    assert (kept(catalog), version(catalog)) == ([2], before + 1)


def test_logins_and_uses_do_not_raise_the_version(catalog):
    before, added = version(catalog), session(1)
    catalog.write(sessions.add, added)
    assert catalog.write(sessions.see, added.digest, now_ms=NOW + 60_000)
    assert catalog.write(sessions.see, added.digest, now_ms=NOW)  # of a broker whose clock is behind
    assert catalog.read(sessions.find, added.digest)[1].seen_at_ms == NOW + 60_000
    assert version(catalog) == before
    assert not catalog.write(sessions.see, b"other", now_ms=NOW)


def test_a_login_replaces_the_session_that_it_names(catalog):
    catalog.write(sessions.add, session(1))
    catalog.write(sessions.add, session(2), replaces=[session(1).digest])
    assert kept(catalog) == [2]


def test_the_oldest_sessions_end_when_there_are_too_many(catalog, monkeypatch):
    monkeypatch.setattr(sessions, "SESSIONS_PER_USER_MAX", 2)
    monkeypatch.setattr(sessions, "SESSIONS_MAX", 3)
    before = version(catalog)
    catalog.write(sessions.add, session(1, "User:bob"))
    for number in (4, 2, 3):
        catalog.write(sessions.add, session(number))
    assert (kept(catalog), version(catalog) > before) == ([1, 3, 4], True)
    catalog.write(sessions.add, session(5, "User:carol"))
    assert kept(catalog) == [3, 4, 5]


def test_expired_sessions_are_deleted_a_number_at_a_time(catalog, monkeypatch):
    monkeypatch.setattr(sessions, "CLEANED_MAX", 2)
    idle, absolute = [session(number) for number in (1, 2)], session(3, expires=NOW + 10)
    for each in (*idle, absolute, session(4)):
        catalog.write(sessions.add, each)
    catalog.write(sessions.see, session(4).digest, now_ms=NOW + IDLE_MS)
    now = NOW + IDLE_MS + 2
    assert [each.has_expired(now) for each in catalog.read(sessions.read)[1]] == [True, True, True, False]
    assert [idle[1].has_expired(now - 1), absolute.has_expired(NOW + 9), absolute.has_expired(NOW + 10)] == [
        *(False, False, True)
    ]
    assert catalog.read(sessions.has_expired_ones, now_ms=now)
    assert [catalog.write(sessions.clean, now_ms=now) for _ in range(3)] == [2, 1, 0]
    assert not catalog.read(sessions.has_expired_ones, now_ms=now)
    assert kept(catalog) == [4]


@for_each(
    "change",
    [
        (security.put_credentials, [CREDENTIAL._replace(salt=b"other")], [3]),
        (security.delete_credential, "alice", MECHANISM, [3]),
        (security.delete_user, "alice", [3]),
        (security.delete_token, "abc", [1, 3]),
    ],
)
def test_sessions_end_with_the_password_or_the_token(catalog, change):
    function, *arguments, remaining = change
    catalog.write(security.put_credentials, [CREDENTIAL])
    catalog.write(security.add_token, TOKEN)
    for number, credential in ((1, f"scram:{MECHANISM}:alice"), (2, "token:abc")):
        catalog.write(sessions.add, session(number, credential=credential))
    catalog.write(sessions.add, session(3, "User:alice2"))
    before = version(catalog)
    catalog.write(function, *arguments)
    assert (kept(catalog), version(catalog) > before) == (remaining, True)
    for number in kept(catalog):
        catalog.write(sessions.end, session(number).digest)
    if function is not security.delete_token:
        catalog.write(security.delete_token, "abc")


def test_a_session_does_not_show_its_digest(catalog):
    assert "digest" not in repr(session(1))
