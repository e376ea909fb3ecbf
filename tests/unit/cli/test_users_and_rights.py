"""`millpond user`, `token`, `acl` and `quota` against a real broker process with security on."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.unit.cli.conftest import COMMAND, LONGEST_S, Done, environment, watched

from millpond.cli.admin_user import create_admin
from millpond.cli.main import cli
from millpond.settings import Settings

FIELDS = ["principal", "permission", "operation", "resource_type", "name", "pattern_type", "host"]
REFUSED = "Authentication failed"


@dataclass(frozen=True)
class Cli:
    """Runs commands as one user, or as one token."""

    address: str
    folder: Path
    variables: dict

    def __call__(self, *arguments, given=b"", code=0):
        variables = {"MILLPOND_ADDRESS": self.address, **self.variables}
        done = CliRunner().invoke(cli, arguments, input=given, env=variables, prog_name="millpond")
        assert done.exit_code == code, done.output
        return Done(done.exit_code, done.stdout_bytes, done.stderr)

    def secret(self, name, text):
        file = self.folder / name
        file.write_text(text + "\n")
        file.chmod(0o600)
        return str(file)

    def as_user(self, name, password):
        file = self.secret(f"{name}.password", password)
        return replace(self, variables={"MILLPOND_USERNAME": name, "MILLPOND_PASSWORD_FILE": file})

    def as_token(self, text):
        return replace(self, variables={"MILLPOND_TOKEN_FILE": self.secret("token", text)})


@pytest.fixture(scope="module")
def admin(tmp_path_factory):
    folder = tmp_path_factory.mktemp("secured")
    password = create_admin(Settings(data_dir=folder / "data"))
    settings = ["--set=security=on", "--set=super_users=User:admin"]
    listening = ["--kafka=", "--http=", "--grpc=127.0.0.1:0", f"--data-dir={folder / 'data'}"]
    command = [*COMMAND, "serve", "--json", *listening, *settings]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment()) as process:
        try:
            address = json.loads(process.stdout.readline())["listeners"]["grpc"]
            yield Cli(address, folder, {}).as_user("admin", password)
        finally:
            process.terminate()
            process.wait(LONGEST_S)


@pytest.fixture
def alice(admin, topic):
    """A user without rights, and with a name of its own in each test."""
    name = f"alice-{topic}"[:60]
    admin("user", "set", name, given=b"first\n")
    return name


# -- users -----------------------------------------------------------------------------------------------------------


def test_a_password_is_read_from_the_input_or_a_file_or_is_chosen(admin, topic):
    done = admin("user", "set", topic, given=b"from input\nsecond line\n")
    assert (done.out, done.err) == (f"set the password of user {topic}\n".encode(), "")
    admin.as_user(topic, "from input")("topic", "list")
    file = admin.secret("new", "from file")
    admin("user", "set", topic, "--new-password-file", file, given=b"ignored\n")
    admin.as_user(topic, "from file")("topic", "list")
    generated = admin("user", "set", topic, "--generate")
    [password] = generated.lines
    assert topic in generated.err
    assert password not in generated.err
    admin.as_user(topic, password)("topic", "list")
    assert REFUSED in admin.as_user(topic, "from file")("topic", "list", code=1).err
    facts = admin("user", "set", topic, "--generate", "--json").json
    admin.as_user(topic, facts["password"])("topic", "list")
    assert admin("user", "set", topic, "--json", given=b"x\n").json == {"user": topic}


def test_users_are_listed_and_deleted(admin, alice):
    assert {"user": alice, "mechanisms": {"SCRAM-SHA-256": 16384, "SCRAM-SHA-512": 16384}} in admin(
        "user", "list", "--json"
    ).json
    shown = admin("user", "list")
    assert shown.lines[0].split() == ["USER", "MECHANISMS"]
    assert any(line.split()[0] == alice for line in shown.lines)
    refused = admin("user", "delete", alice, code=1)
    assert "Confirm with --yes" in refused.err
    assert admin("user", "delete", alice, "--yes").lines == [f"deleted user {alice}"]
    gone = admin("user", "delete", alice, "--yes", code=1)
    assert f"There is no user '{alice}'. `millpond user list` shows those that exist." in gone.err


def test_deleting_a_user_names_the_tokens_and_acls_that_stay(admin, alice):
    token = admin("token", "create", alice, "--json").json
    admin("acl", "create", "--principal", alice, "--operation", "READ", "--topic", "t")
    done = admin("user", "delete", alice, "--yes")
    assert f"{alice} still has 1 token: {token['id']}." in done.err
    assert f"{alice} still has 1 ACL." in done.err
    admin.as_token(token["token"])("topic", "list")
    admin("user", "set", alice, given=b"x\n")
    facts = admin("user", "delete", alice, "--yes", "--json").json
    assert facts == {"user": alice, "deleted": True, "tokens": [token["id"]], "acls": 1}


def test_a_terminal_is_asked_twice(admin, topic):
    """The prompts do not show what is typed."""
    code = "import pty, sys; sys.exit(pty.spawn([sys.executable, '-m', 'millpond', *sys.argv[1:]]) >> 8)"
    command = [sys.executable, "-c", code, "user", "set", topic]
    variables = environment(MILLPOND_ADDRESS=admin.address, **admin.variables)
    pipes = dict.fromkeys(("stdin", "stdout"), subprocess.PIPE)
    with watched(subprocess.Popen(command, **pipes, env=variables, bufsize=0)) as process:
        shown = b""
        for prompt in (b"New password of", b"Repeat for confirmation"):
            while prompt not in shown:
                shown += process.stdout.read(1)
            while not shown.endswith(b": "):
                shown += process.stdout.read(1)
            process.stdin.write(b"typed-s3cret\n")
        while chunk := process.stdout.read(1000):
            shown += chunk
        assert process.wait() == 0
    assert b"typed-s3cret" not in shown
    admin.as_user(topic, "typed-s3cret")("topic", "list")


# -- tokens ----------------------------------------------------------------------------------------------------------


def test_the_text_of_a_token_is_alone_on_standard_output(admin, alice):
    done = admin("token", "create", alice, "--expires", "30d", "--description", "nightly export")
    [text] = done.lines
    assert text.startswith("mp_")
    assert f"for User:{alice}" in done.err
    assert text not in done.err
    token_id = text.split("_")[1]
    [stored] = [each for each in admin("token", "list", "--json").json if each["id"] == token_id]
    assert (stored["principal"], stored["created_by"]) == (f"User:{alice}", "User:admin")
    assert stored["expires_at_ms"] - stored["created_at_ms"] == pytest.approx(30 * 86_400_000, abs=600_000)
    assert stored["description"] == "nightly export"
    assert "nightly export" in admin("token", "list").out.decode()
    client = admin.as_token(text)
    client("topic", "list")
    assert "Confirm with --yes" in admin("token", "delete", token_id, code=1).err
    assert admin("token", "delete", token_id, "--yes").lines == [f"deleted token {token_id} of User:{alice}"]
    assert REFUSED in client("topic", "list", code=1).err
    gone = admin("token", "delete", token_id, "--yes", code=1)
    assert f"There is no token '{token_id}'. `millpond token list` shows those that exist." in gone.err


def test_a_token_needs_no_password_and_may_live_forever(admin, topic):
    made = admin("token", "create", f"User:{topic}", "--json").json
    assert made["principal"] == f"User:{topic}"
    [stored] = [each for each in admin("token", "list", "--json").json if each["id"] == made["id"]]
    assert stored["expires_at_ms"] is None
    deleted = admin("token", "delete", made["id"], "--yes", "--json").json
    assert deleted == {**stored, "deleted": True}


# -- ACLs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["READ,write", "--topic", "t"], ["allow read topic t literal *", "allow write topic t literal *"]),
        (["READ", "--group", "billing"], ["allow read group billing literal *"]),
        (["READ", "--subscription", "orders/billing"], ["allow read group orders/billing literal *"]),
        (["ALL", "--topic", "team-", "--prefix"], ["allow all topic team- prefixed *"]),
        (
            ["READ", "--operation", "DELETE", "--group", "*"],
            ["allow read group * literal *", "allow delete group * literal *"],
        ),
        (
            ["WRITE", "--transactional-id", "*", "--host", "192.0.2.1", "--deny"],
            ["deny write transactional_id * literal 192.0.2.1"],
        ),
        (["describe-configs", "--cluster"], ["allow describe_configs cluster kafka-cluster literal *"]),
    ],
)  # fmt: skip
def test_acls_are_created_listed_and_deleted_with_the_same_options(admin, alice, options, expected):
    given = ["--principal", alice, "--operation", *options]
    entries = texts(entry(f"User:{alice}", *each.split()) for each in expected)
    assert texts(admin("acl", "create", *given, "--json").json) == entries
    assert texts(admin("acl", "list", *given, "--json").json) == entries
    assert texts(admin("acl", "list", "--principal", f"User:{alice}", "--json").json) == entries
    assert "Confirm with --yes" in admin("acl", "delete", *given, code=1).err
    assert texts(admin("acl", "delete", *given, "--yes", "--json").json) == entries
    assert admin("acl", "list", *given, "--json").json == []
    assert admin("acl", "list", *given).lines == ["There are no such ACLs."]
    assert admin("acl", "delete", *given, "--yes").lines == ["deleted 0 ACLs"]


def entry(*values):
    return dict(zip(FIELDS, values, strict=True))


def texts(acls):
    """They have no order."""
    return sorted(json.dumps(each, sort_keys=True) for each in acls)


def test_acls_are_a_table_for_people(admin, alice):
    created = admin("acl", "create", "--principal", alice, "--operation", "READ", "--topic", "orders")
    assert [line.split() for line in created.lines] == [
        ["PRINCIPAL", "PERMISSION", "OPERATION", "RESOURCE", "NAME", "PATTERN", "HOST"],
        [f"User:{alice}", "ALLOW", "READ", "topic", "orders", "literal", "*"],
    ]
    assert admin("acl", "list", "--principal", alice).out == created.out
    refused = admin("acl", "delete", "--principal", alice, code=1)
    assert created.out.decode() in refused.err, "what would be deleted"
    assert admin("acl", "delete", "--principal", alice, "--yes").lines == ["deleted 1 ACL"]


def test_match_finds_every_acl_that_applies_to_a_resource(admin, alice):
    for options in (
        ["--topic", "ord", "--prefix"],
        ["--topic", "*"],
        ["--topic", "orders"],
        ["--topic", "other"],
    ):
        admin("acl", "create", "--principal", alice, "--operation", "READ", *options)
    selection = ["acl", "list", "--principal", alice, "--topic", "orders", "--json"]
    assert [each["name"] for each in admin(*selection).json] == ["orders"]
    assert {each["name"] for each in admin(*selection, "--match").json} == {"ord", "*", "orders"}


def test_a_denial_is_selected_by_deny_alone(admin, alice):
    for options in ([], ["--deny"]):
        admin("acl", "create", "--principal", alice, "--operation", "READ", "--topic", "t", *options)
    assert admin("acl", "delete", "--principal", alice, "--deny", "--yes").lines == ["deleted 1 ACL"]
    [left] = admin("acl", "list", "--principal", alice, "--json").json
    assert left["permission"] == "allow"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["acl", "delete", "--yes"], "say which ACLs to delete"),
        (["acl", "create"], "say who may do what"),
        (["acl", "create", "--principal", "a", "--topic", "t"], "say who may do what"),
        (["acl", "create", "--principal", "a", "--operation", "READ"], "say who may do what"),
        (["acl", "create", "--operation", "READ", "--topic", "t"], "say who may do what"),
        (["acl", "list", "--topic", "t", "--group", "g"], "give one of --topic"),
        (["acl", "list", "--topic", "t", "--cluster"], "give one of --topic"),
        (["acl", "list", "--prefix"], "--prefix needs"),
        (["acl", "list", "--cluster", "--prefix"], "--prefix needs"),
        (["acl", "list", "--match"], "--match needs"),
        (["acl", "list", "--topic", "t", "--prefix", "--match"], "--match needs"),
        (["acl", "list", "--operation", "FLY"], "'FLY' is not one of ALL, READ"),
        (["acl", "list", "--operation", "WRITE", "--group", "g"], "a group has no operation WRITE; it has ALL, READ"),
        (["acl", "list", "--subscription", "billing"], "TOPIC/NAME"),
        (["acl", "list", "--principal", ":a"], "User:name"),
        (["token", "create", "User:"], "User:name"),
        (["token", "create", "alice", "--expires", "soon"], "write a duration"),
        (["token", "create", "alice", "--expires", "0s"], "more than 0"),
        (["user", "set", "x", "--generate", "--new-password-file", os.devnull], "not both"),
    ],
)  # fmt: skip
def test_wrong_usage_is_a_sentence(admin, arguments, sentence):
    done = admin(*arguments, code=2)
    assert sentence in done.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["user", "set", "x"], "The input is empty"),
        (["user", "set", "*", "--generate"], "printable ASCII"),
        (["user", "set", "a:b", "--generate"], "no colon"),
        (["acl", "list", "--topic", ""], "name=''"),
        (["token", "create", "Broker:1"], "a token is for a user"),
        (["token", "create", "*"], "User:* means all users"),
    ],
)
def test_what_cannot_be_done_is_a_sentence(admin, arguments, sentence):
    assert sentence in admin(*arguments, code=1).err


def test_a_broker_without_security_says_so(millpond):
    for arguments in (["user", "list"], ["token", "list"], ["acl", "list"], ["quota", "list"]):
        done = millpond.inside(*arguments)
        assert done.code == 1
        assert "security is off; start the broker with security=on" in done.err


# -- the whole story ---------------------------------------------------------------------------------------------------


def test_a_user_has_the_rights_it_was_given_and_no_others_until_they_are_taken_away(admin, alice, topic):
    orders, other = f"{topic}-orders", f"{topic}-other"
    admin("topic", "create", orders)
    admin("topic", "create", other)
    client = admin.as_user(alice, "first")

    denied = client("produce", orders, given=b"one\n", code=1)
    assert f"User:{alice} may not" in denied.err
    assert f"topic '{orders}'" in denied.err
    assert "An administrator can allow it" in denied.err
    assert client("topic", "list", "--json").json == []

    admin("acl", "create", "--principal", alice, "--operation", "READ,WRITE", "--topic", orders)
    admin("acl", "create", "--principal", alice, "--operation", "READ", "--group", "billing")
    client("produce", orders, given=b"one\ntwo\n")
    assert client("consume", orders).lines == ["one", "two"]
    assert client("consume", orders, "--group", "billing").lines == ["one", "two"]
    assert [each["name"] for each in client("topic", "list", "--json").json] == [orders]

    for arguments, sentence in (
        (["produce", other], f"topic '{other}'"),
        (["consume", other], f"topic '{other}'"),
        (["consume", f"{topic}-absent"], f"topic '{topic}-absent'"),
        (["consume", orders, "--group", "others"], "group 'others'"),
        (["topic", "create", f"{topic}-new"], f"topic '{topic}-new'"),
        (["topic", "alter", orders, "--partitions", "2"], f"topic '{orders}'"),
        (["user", "list"], "the cluster"),
        (["user", "set", alice, "--generate"], "the cluster"),
        (["acl", "create", "--principal", alice, "--operation", "ALL", "--topic", other], "the cluster"),
        (["token", "create", alice], "the cluster"),
        (["cluster", "status"], "the cluster"),
    ):
        refused = client(*arguments, given=b"x\n", code=1)
        assert f"User:{alice} may not" in refused.err, arguments
        assert sentence in refused.err, arguments

    admin("acl", "delete", "--principal", alice, "--operation", "WRITE", "--yes")
    assert "may not write" in client("produce", orders, given=b"x\n", code=1).err
    assert client("consume", orders).lines == ["one", "two"]

    by_token = admin.as_token(admin("token", "create", alice, "--json").json["token"])
    assert by_token("consume", orders).lines == ["one", "two"]
    admin("user", "delete", alice, "--yes")
    assert REFUSED in client("consume", orders, code=1).err
    assert by_token("consume", orders).lines == ["one", "two"], "the token is another credential"
    [token] = [each for each in admin("token", "list", "--json").json if each["principal"] == f"User:{alice}"]
    admin("token", "delete", token["id"], "--yes")
    assert REFUSED in by_token("consume", orders, code=1).err


def test_a_reader_that_waits_ends_when_its_token_is_deleted(admin, alice, topic):
    admin("topic", "create", topic)
    admin("acl", "create", "--principal", alice, "--operation", "READ", "--topic", topic)
    made = admin("token", "create", alice, "--json").json
    variables = environment(MILLPOND_ADDRESS=admin.address, **admin.as_token(made["token"]).variables)
    admin("produce", topic, given=b"one\n")
    pipes = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    command = [*COMMAND, "consume", topic, "--follow"]
    with watched(subprocess.Popen(command, **pipes, env=variables, bufsize=0)) as reader:
        assert reader.stdout.readline() == b"one\n"
        admin("token", "delete", made["id"], "--yes")
        assert reader.wait(LONGEST_S) == 1
        said = reader.stderr.read().decode()
    assert REFUSED in said or "The credential has expired or was revoked" in said, (
        "at its poll, or at the next one"
    )


def test_a_subscription_needs_rights_of_its_own(admin, alice, topic):
    admin("topic", "create", topic)
    admin("subscription", "create", topic, "work")
    admin("produce", topic, given=b"one\n")
    admin("acl", "create", "--principal", alice, "--operation", "READ", "--topic", topic)
    client = admin.as_user(alice, "first")
    consume = ["consume", topic, "--subscription", "work", "--count", "1"]
    assert f"group '{topic}/work'" in client(*consume, code=1).err
    admin("acl", "create", "--principal", alice, "--operation", "READ", "--subscription", f"{topic}/work")
    assert client(*consume).lines == ["one"]


def test_no_command_shows_a_password(admin, alice):
    for arguments in (["user", "list"], ["token", "list"], ["acl", "list"], ["quota", "list"]):
        shown = admin(*arguments, "--json")
        assert b"first" not in shown.out
        assert Path(admin.variables["MILLPOND_PASSWORD_FILE"]).read_text().strip().encode() not in shown.out


# -- quotas ----------------------------------------------------------------------------------------------------------


def test_quotas_are_set_listed_and_deleted_with_the_same_options(admin, alice):
    entity = {"user": alice, "client_id": None, "ip": None, "topic": None}
    assert "There are no quotas" in admin("quota", "list").out.decode()
    given = ["--user", f"User:{alice}", "--producer-byte-rate", "1048576", "--request-percentage", "12.5"]
    values = {"producer_byte_rate": 1048576.0, "request_percentage": 12.5}
    assert admin("quota", "set", *given, "--json").json == [{**entity, "values": values}]
    admin("quota", "set", "--default-user", "--client-id", "etl", "--consumer-byte-rate", "5")
    admin("quota", "set", "--ip", "192.0.2.1", "--connection-creation-rate", "3")
    assert [line.split() for line in admin("quota", "list", "--user", alice).lines] == [
        ["USER", "CLIENT", "ID", "IP", "TOPIC", "QUOTA", "VALUE"],
        [alice, "-", "-", "-", "producer_byte_rate", "1048576"],
        [alice, "-", "-", "-", "request_percentage", "12.5"],
    ]
    admin("quota", "set", "--topic", "team-*", "--stored-bytes", "1000")
    others = [each for each in admin("quota", "list", "--json").json if each["user"] != alice]
    assert {(each["user"], each["client_id"], each["ip"], each["topic"]) for each in others} == {
        ("", "etl", None, None),
        (None, None, "192.0.2.1", None),
        (None, None, None, "team-*"),
    }
    assert "Confirm with --yes" in admin("quota", "delete", "--user", alice, code=1).err
    deleted = admin("quota", "delete", "--user", alice, "--producer-byte-rate", "--yes", "--json").json
    assert deleted == {**entity, "deleted": ["producer_byte_rate"]}
    assert admin("quota", "delete", "--user", alice, "--yes").lines == [f"deleted 1 quota of user '{alice}'"]
    assert admin("quota", "list", "--user", alice).lines == ["There are no such quotas."]
    admin("quota", "delete", "--default-user", "--client-id", "etl", "--yes")
    admin("quota", "delete", "--ip", "192.0.2.1", "--yes")
    admin("quota", "delete", "--topic", "team-*", "--yes")
    assert admin("quota", "list", "--json").json == []


def test_quotas_that_make_no_sense_are_refused_with_a_sentence(admin):
    for arguments, sentence in (
        (["set", "--producer-byte-rate", "1"], "say whose quotas"),
        (["set", "--user", "alice"], "say which quotas: --producer-byte-rate"),
        (["set", "--user", "a", "--default-user", "--producer-byte-rate", "1"], "not both"),
        (["set", "--user", "", "--producer-byte-rate", "1"], "use --default-user"),
        (["set", "--user", "a", "--ip", "192.0.2.1"], "has no user and no client id"),
        (["set", "--user", "a", "--connection-creation-rate", "1"], "has no quota connection_creation_rate"),
        (["set", "--user", "a", "--producer-byte-rate", "0"], "is not in the range x>0"),
        (["set", "--topic", "t", "--user", "a"], "a quota of a topic has no user"),
        (["delete", "--producer-byte-rate"], "say whose quotas"),
    ):
        assert sentence in admin("quota", *arguments, code=2).err, arguments
    refused = admin("quota", "set", "--user", "a", "--producer-byte-rate", "1.5", code=1)
    assert "must be a whole number" in refused.err
    refused = admin("quota", "set", "--ip", "here", "--connection-creation-rate", "1", code=1)
    assert "is not an IP address" in refused.err
