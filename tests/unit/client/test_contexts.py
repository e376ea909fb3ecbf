"""The file of contexts: what it may hold, how it is written, and that no secret is in it."""

import stat
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.client.contexts import (
    ConnectionContext,
    StoredContexts,
    contexts_path,
    find_context,
    load_contexts,
    save_contexts,
)
from millpond.model.errors import InvalidArgument

texts = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
contexts = st.builds(
    ConnectionContext, address=texts, tls=st.none() | st.booleans(), server_name=texts, username=texts
)


@given(st.builds(StoredContexts, st.none() | names, st.dictionaries(names, contexts, max_size=3)))
def test_what_is_written_is_read_back(tmp_path_factory, stored):
    path = tmp_path_factory.mktemp("contexts") / "contexts.toml"
    save_contexts(path, stored)
    assert load_contexts(path) == stored


def test_only_the_user_can_open_the_file_and_its_folder(tmp_path):
    path = tmp_path / "config" / "millpond" / "contexts.toml"
    save_contexts(path, StoredContexts())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    path.chmod(0o644)
    save_contexts(path, StoredContexts("a", {"a": ConnectionContext("h:1")}))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["contexts.toml"]


def test_without_a_file_there_are_none(tmp_path):
    assert load_contexts(tmp_path / "missing") == StoredContexts()


def test_the_file_is_where_the_configuration_of_a_user_is(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/of/alice")
    assert str(contexts_path({})) == "/of/alice/.config/millpond/contexts.toml"
    assert str(contexts_path({"XDG_CONFIG_HOME": ""})) == "/of/alice/.config/millpond/contexts.toml"
    assert str(contexts_path({"XDG_CONFIG_HOME": "relative"})) == "/of/alice/.config/millpond/contexts.toml"
    assert contexts_path({"XDG_CONFIG_HOME": str(tmp_path)}) == tmp_path / "millpond" / "contexts.toml"


def test_a_relative_path_begins_at_the_folder_of_the_file(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/of/alice")
    path = tmp_path / "contexts.toml"
    path.write_text('[contexts.a]\nca = "ca.pem"\ntoken_file = "~/token"\npassword_file = "/etc/password"\n')
    found = load_contexts(path).contexts["a"]
    assert (found.ca, found.token_file, found.password_file) == (
        str(tmp_path / "ca.pem"),
        "/of/alice/token",
        "/etc/password",
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("nonsense", "it cannot be read"),
        ("\xff", "it cannot be read"),
        ("other = 1", "'other' is unknown"),
        ("current = 1", "'current' must be a name"),
        ("contexts = 1", "'contexts' a table"),
        ("[contexts]\na = 1", "'a': expected a name"),
        ('[contexts."no/slash"]', "'no/slash': expected a name"),
        ('[contexts.a]\ncolour = "red"', "context 'a': 'colour' is unknown; expected one of address, tls"),
        ("[contexts.a]\naddress = 1", "context 'a': 'address' must be text"),
        ('[contexts.a]\ntls = "yes"', "context 'a': 'tls' must be true or false"),
    ],
)
def test_a_file_that_is_not_valid_is_named_with_the_reason(tmp_path, text, reason):
    path = tmp_path / "contexts.toml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InvalidArgument) as refused:
        load_contexts(path)
    assert str(path) in str(refused.value)
    assert reason in str(refused.value)


@pytest.mark.parametrize(("key", "instead"), [("password", "password_file"), ("token", "token_file")])
def test_a_secret_in_the_file_is_refused_and_not_shown(tmp_path, key, instead):
    path = tmp_path / "contexts.toml"
    path.write_text(f'[contexts.a]\n{key} = "s3cret"\n')
    path.chmod(0o600)
    with pytest.raises(
        InvalidArgument, match=f"holds a {key}. Move it to a file, and set {instead}"
    ) as refused:
        load_contexts(path)
    assert "s3cret" not in str(refused.value)


def test_a_context_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(
        InvalidArgument, match=r"^--context='a': expected a context of .*millpond context list"
    ):
        find_context(tmp_path / "contexts.toml", "a", "--context")


def test_a_context_whose_secret_others_can_read_is_refused(tmp_path):
    path, secret = tmp_path / "contexts.toml", tmp_path / "token"
    secret.write_text("s3cret")
    secret.chmod(0o644)
    save_contexts(path, StoredContexts(None, {"a": ConnectionContext(token_file=str(secret))}))
    with pytest.raises(
        InvalidArgument, match=r"token_file of context 'a': other users can open .* chmod 600"
    ):
        find_context(path, "a", "--context")
    secret.chmod(0o600)
    assert find_context(path, "a", "--context").token_file == str(secret)
    assert tomllib.loads(path.read_text())["contexts"]["a"] == {"token_file": str(secret)}
