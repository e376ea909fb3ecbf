"""Where address, TLS and credentials come from: the call, else the environment, else a context."""

import pytest
from tests.certificates import Authority

from millpond.client.contexts import ConnectionContext, StoredContexts, contexts_path, save_contexts
from millpond.client.security import SecurityArguments, Tls
from millpond.client.sources import (
    ConnectionSource,
    merge,
    resolve,
    source_of_call,
    source_of_context,
    source_of_environment,
)
from millpond.model.errors import InvalidArgument


def header(addresses_and_security):
    metadata = addresses_and_security[1].metadata()
    return None if metadata is None else metadata[0][1]


@pytest.fixture
def environment(tmp_path):
    """Of a user with a context, whose token is in a file."""
    folder = tmp_path / "config"
    token = tmp_path / "token"
    token.write_text("of-context\n")
    token.chmod(0o600)
    environment = {"XDG_CONFIG_HOME": str(folder)}
    prod = ConnectionContext(address="localhost:7", token_file=str(token))
    save_contexts(contexts_path(environment), StoredContexts("prod", {"prod": prod}))
    return environment


# -- the order ---------------------------------------------------------------------------------------------------------


def test_the_call_counts_more_than_the_environment_and_that_more_than_a_context(environment):
    given = SecurityArguments(token="of-call")
    assert resolve(None, SecurityArguments(), environment)[0] == ("127.0.0.1:9999",), "it is not named"
    environment["MILLPOND_CONTEXT"] = "prod"
    found = resolve(None, SecurityArguments(), environment)
    assert (found[0], header(found)) == (("localhost:7",), "Bearer of-context")
    environment["MILLPOND_TOKEN"] = "of-environment"
    found = resolve(None, SecurityArguments(), environment)
    assert (found[0], header(found)) == (("localhost:7",), "Bearer of-environment")
    assert header(resolve(None, given, environment)) == "Bearer of-call"


def test_the_credentials_of_a_context_go_to_its_own_address_only(environment):
    environment["MILLPOND_CONTEXT"] = "prod"
    assert header(resolve("127.0.0.1:1", SecurityArguments(), environment)) is None
    environment["MILLPOND_ADDRESS"] = "127.0.0.1:2"
    found = resolve(None, SecurityArguments(), environment)
    assert (found[0], header(found)) == (("127.0.0.1:2",), None)


def test_a_context_that_does_not_exist_is_named(environment):
    environment["MILLPOND_CONTEXT"] = "nope"
    with pytest.raises(InvalidArgument, match=r"^MILLPOND_CONTEXT='nope': expected a context of "):
        resolve(None, SecurityArguments(), environment)


ALICE = ConnectionSource(username="alice")
ALICE_WITH_PASSWORD = ConnectionSource(username="alice", password="a")
BOB_WITH_PASSWORD = ConnectionSource(username="bob", password="b")
PASSWORD = ConnectionSource(password="p")
TOKEN = ConnectionSource(token="t")


@pytest.mark.parametrize(
    ("sources", "username", "password", "token"),
    [
        ([ALICE, ALICE_WITH_PASSWORD], "alice", "a", None),
        ([ALICE, BOB_WITH_PASSWORD], "alice", None, None),
        ([ALICE, PASSWORD], "alice", "p", None),
        ([PASSWORD, BOB_WITH_PASSWORD], "bob", "p", None),
        ([ALICE_WITH_PASSWORD, TOKEN], "alice", "a", None),
        ([ALICE, TOKEN, PASSWORD], "alice", "p", None),
        ([TOKEN, ALICE_WITH_PASSWORD], None, None, "t"),
        ([ConnectionSource(), TOKEN], None, None, "t"),
        ([ConnectionSource()], None, None, None),
    ],
)
def test_a_password_belongs_to_its_user(sources, username, password, token):
    _, found = merge(sources)
    assert (found.username, found.password, found.token) == (username, password, token)


CA = Tls(ca="ca.pem")


@pytest.mark.parametrize(
    ("sources", "tls"),
    [
        ([], False),
        ([ConnectionSource(is_tls=True)], Tls()),
        ([ConnectionSource(is_tls=True), ConnectionSource(is_tls=True, tls=CA)], CA),
        ([ConnectionSource(is_tls=False), ConnectionSource(is_tls=True, tls=CA)], False),
        ([ConnectionSource(is_tls=True, tls=Tls()), ConnectionSource(is_tls=True, tls=CA)], Tls()),
    ],
)
def test_tls_is_on_if_the_first_source_says_so_with_the_first_files(sources, tls):
    assert merge(sources)[1].tls == tls


# -- each source -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variables", "is_tls", "tls"),
    [
        ({}, None, None),
        ({"MILLPOND_TLS": "true"}, True, None),
        ({"MILLPOND_TLS": "ON"}, True, None),
        ({"MILLPOND_TLS": "0"}, False, None),
        ({"MILLPOND_TLS": ""}, None, None),
        ({"MILLPOND_TLS": "proxy"}, None, None),
        ({"MILLPOND_TLS_CA": "ca.pem"}, True, CA),
        ({"MILLPOND_TLS_CA": "ca.pem", "MILLPOND_TLS": "off"}, False, CA),
    ],
)
def test_tls_of_the_environment(variables, is_tls, tls):
    found = source_of_environment(variables)
    assert (found.is_tls, found.tls) == (is_tls, tls)


def test_secrets_of_the_environment_may_be_in_files(tmp_path):
    file = tmp_path / "secret"
    file.write_text("word\n")
    found = source_of_environment({"MILLPOND_USERNAME": "alice", "MILLPOND_PASSWORD_FILE": str(file)})
    assert (found.username, found.password) == ("alice", "word")
    token = source_of_environment({"MILLPOND_TOKEN_FILE": str(file)}).token
    assert token() == "word"


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"MILLPOND_TLS": "maybe"}, "MILLPOND_TLS='maybe': expected one of true, on"),
        ({"MILLPOND_ADDRESS": "nonsense"}, "MILLPOND_ADDRESS='nonsense'"),
        ({"MILLPOND_USERNAME": "a:b"}, "MILLPOND_USERNAME='a:b'"),
        ({"MILLPOND_TOKEN": "s3cret x"}, r"MILLPOND_TOKEN=\(hidden\)"),
        (
            {"MILLPOND_TOKEN": "s3cret", "MILLPOND_TOKEN_FILE": "x"},
            "expected no MILLPOND_TOKEN_FILE beside it",
        ),
        ({"MILLPOND_TOKEN": "s3cret", "MILLPOND_USERNAME": "a"}, "expected no MILLPOND_USERNAME or password"),
        (
            {"MILLPOND_PASSWORD": "s3cret", "MILLPOND_PASSWORD_FILE": "x"},
            "expected no MILLPOND_PASSWORD_FILE beside it",
        ),
        ({"MILLPOND_PASSWORD_FILE": "/no/file"}, "MILLPOND_PASSWORD_FILE='/no/file': expected a file"),
    ],
)
def test_a_wrong_variable_is_named_and_no_secret_shown(variables, named):
    with pytest.raises(InvalidArgument, match=named) as refused:
        source_of_environment(variables)
    assert "s3cret" not in str(refused.value)


def test_a_password_needs_a_user_and_a_user_a_password():
    with pytest.raises(InvalidArgument, match=r"^password=\(hidden\): expected a username beside it"):
        resolve(None, SecurityArguments(password="p"), {})
    with pytest.raises(InvalidArgument, match=r"^username='alice': expected a password beside it"):
        resolve(None, SecurityArguments(username="alice"), {})
    found = resolve(None, SecurityArguments(username="alice"), {"MILLPOND_PASSWORD": "p"})
    assert header(found) == "Basic YWxpY2U6cA=="


def test_a_context_has_tls_with_its_files(tmp_path):
    authority = Authority(tmp_path)
    alice = authority.client("alice")
    files = {"ca": str(authority.ca), "certificate": str(alice.certificate), "key": str(alice.key)}
    found = source_of_context(ConnectionContext(**files, server_name="x"))
    assert (found.is_tls, found.tls) == (True, Tls(**files, server_name="x"))
    assert source_of_context(ConnectionContext(**files, tls=False)).is_tls is False
    assert source_of_context(ConnectionContext(tls=True)).tls is None
    assert source_of_context(ConnectionContext()).is_tls is None


def test_a_context_has_a_token_or_a_user_name(tmp_path):
    token = tmp_path / "token"
    token.write_text("t")
    with pytest.raises(InvalidArgument, match="expected no username or password beside it"):
        source_of_context(ConnectionContext(username="alice", token_file=str(token)))


def test_no_source_shows_a_secret():
    found = source_of_call(None, SecurityArguments(username="alice", password="s3cret"))
    assert "s3cret" not in repr(found)
