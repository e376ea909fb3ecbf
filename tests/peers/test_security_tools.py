"""`kafka-acls` and `kafka-configs` against Millpond and against Apache Kafka with its StandardAuthorizer: the same
commands, and the same output."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from peers.server import free_port
from tests.clients.secured_clients import PASSWORD, start
from tests.peers.support import available, shows
from tests.tls import Pki

from peers import kafka, programs

ACLS, CONFIGS = "kafka-acls", "kafka-configs"
TOOLS = {ACLS: "acls", CONFIGS: "configs"}
Result = dict[str, Any]


class Broker:
    """The options that every command needs to reach it."""

    def __init__(self, address: str, config: Path | None = None) -> None:
        self.options = ["--bootstrap-server", address]
        if config is not None:
            self.options += ["--command-config", str(config)]

    def run(self, version: str, tool: str, commands: list[str]) -> list[Result]:
        """The status and the lines of each command, in one order: brokers list in any."""
        main = kafka.main_class(TOOLS[tool], version)
        given = json.dumps([[main, *self.options, *each.split()] for each in commands])
        program = available(lambda: programs.java_tools(version))
        done = program.run(text=given)
        assert done.returncode == 0, done.stderr
        results = json.loads(done.stdout.strip().splitlines()[-1])
        return [
            {"command": command, "status": each["status"], "lines": _lines(each["status"], each["out"])}
            for command, each in zip(commands, results, strict=True)
        ]


def _lines(status: int, text: str) -> list[str]:
    """What the brokers said: sentences are theirs, codes are Kafka's. They list in any order, so it is sorted."""
    if status != 0:
        return sorted(set(re.findall(r"org\.apache\.kafka\.common\.errors\.\w+", text)))
    found = (line.strip() for line in text.splitlines())
    return sorted(_in_order(line) for line in found if line and not _is_other(line))


def _in_order(line: str) -> str:
    """A line such as `configs … are a, b`, in which the order of the list does not matter."""
    begin, are, listed = line.rpartition(" are ")
    return begin + are + ", ".join(sorted(listed.split(", ")))


def _is_other(line: str) -> bool:
    """Hints of newer tools about their options, and the users with which our broker was started."""
    return "deprecated" in line or any(f"user-principal '{user}'" in line for user in ("admin", "alice"))


@pytest.fixture(params=kafka.VERSIONS)
def version(request) -> str:
    available(lambda: kafka.jars(request.param))
    return request.param


@pytest.fixture(scope="module")
def ours(tmp_path_factory) -> Iterator[Broker]:
    folder = tmp_path_factory.mktemp("secured")
    pki = Pki(folder)
    broker = start(folder, **pki.settings())
    login = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    config = folder / "admin.properties"
    config.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nssl.truststore.type=PEM\n"
        f"ssl.truststore.location={pki.ca_path}\n"
        f'sasl.jaas.config={login} username="admin" password="{PASSWORD}";\n'
    )
    try:
        yield Broker(broker.address, config)
    finally:
        broker.stop()


@pytest.fixture(scope="module")
def kafkas(tmp_path_factory) -> Iterator[Broker]:
    available(kafka.jars)
    controller = free_port()
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
    }
    port = free_port()
    settings["listeners"] = f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}"
    with kafka.running(tmp_path_factory.mktemp("kafka"), settings, port) as server:
        yield Broker(server.address)


def check_same(kafkas: Broker, ours: Broker, version: str, tool: str, commands: list[str]) -> list[Result]:
    theirs = kafkas.run(version, tool, commands)
    mine = ours.run(version, tool, commands)
    differing = [(a, b) for a, b in zip(theirs, mine, strict=True) if a != b]
    assert differing == []
    return mine


OF_BOB = "--allow-principal User:bob"
ACL_COMMANDS = [
    "--remove --force --topic *",
    "--remove --force --topic t1",
    "--remove --force --topic t2",
    "--remove --force --topic team- --resource-pattern-type prefixed",
    "--remove --force --group g",
    "--remove --force --transactional-id tx",
    "--remove --force --cluster",
    f"--add {OF_BOB} --operation Read --operation Write --topic t1",
    f"--add {OF_BOB} --operation All --topic team- --resource-pattern-type prefixed",
    "--add --deny-principal User:eve --deny-host 192.0.2.1 --operation Read --topic t1",
    "--add --allow-principal User:* --operation Describe --topic *",
    "--add --allow-principal User:carol --producer --topic t2 --transactional-id tx",
    "--add --allow-principal User:carol --consumer --topic t2 --group g",
    "--add --allow-principal User:ops --operation Alter --cluster",
    "--list --topic t1",
    "--list --topic *",
    "--list --topic team-a --resource-pattern-type match",
    "--list --topic team- --resource-pattern-type prefixed",
    "--list --principal User:carol --topic t2",
    "--list --group g",
    "--list --transactional-id tx",
    "--list --cluster",
    f"--remove --force {OF_BOB} --operation Read --topic t1",
    "--list --topic t1",
    "--remove --force --topic team- --resource-pattern-type prefixed",
    "--list --topic team- --resource-pattern-type any",
    f"--add {OF_BOB} --operation Nonsense --topic t1",
]


@shows(
    ACLS,
    "adds, lists and removes ACLs: literal, prefixed, wildcard, deny, by host, for producers and consumers",
)
def test_acls(kafkas, ours, version):
    seen = check_same(kafkas, ours, version, ACLS, ACL_COMMANDS)
    listed = {each["command"]: " ".join(each["lines"]) for each in seen}
    assert "principal=User:eve" in listed["--list --topic t1"]
    assert "host=192.0.2.1" in listed["--list --topic t1"]
    assert "patternType=PREFIXED" in listed["--list --topic team-a --resource-pattern-type match"]


DAVE = "--entity-type users --entity-name dave"
USER_COMMANDS = [
    f"--alter {DAVE} --add-config SCRAM-SHA-256=[iterations=8192,password=secret]",
    f"--alter {DAVE} --add-config SCRAM-SHA-512=[password=secret]",
    f"--describe {DAVE}",
    f"--alter {DAVE} --delete-config SCRAM-SHA-256",
    f"--describe {DAVE}",
    f"--alter {DAVE} --delete-config SCRAM-SHA-512",
    f"--describe {DAVE}",
    f"--alter {DAVE} --delete-config SCRAM-SHA-512",
    f"--alter {DAVE} --add-config SCRAM-SHA-256=[password=secret],SCRAM-SHA-512=[password=secret]",
    f"--alter {DAVE} --add-config SCRAM-SHA-256=[iterations=1,password=secret]",
]


@shows(CONFIGS, "adds, describes and deletes SCRAM credentials of users")
def test_users(kafkas, ours, version):
    seen = check_same(kafkas, ours, version, CONFIGS, USER_COMMANDS)
    assert "SCRAM-SHA-256=iterations=8192" in " ".join(seen[2]["lines"])
    assert "SCRAM-SHA-256" not in " ".join(seen[4]["lines"])


APP, DEFAULT_USER, DEFAULT_APP, ADDRESS = (
    "--entity-type clients --entity-name app",
    "--entity-type users --entity-default",
    "--entity-type clients --entity-default",
    "--entity-type ips --entity-name 192.0.2.1",
)
BYTES = "producer_byte_rate=1024,consumer_byte_rate=2048"


def _quotas(entity: str, values: str) -> list[str]:
    names = ",".join(each.partition("=")[0] for each in values.split(","))
    first, _, rest = names.partition(",")
    return [
        f"--alter {entity} --add-config {values}",
        f"--describe {entity}",
        f"--alter {entity} --delete-config {first}",
        f"--describe {entity}",
        *([f"--alter {entity} --delete-config {rest}", f"--describe {entity}"] if rest else []),
    ]


QUOTA_COMMANDS = [
    *_quotas(DAVE, f"{BYTES},request_percentage=50,controller_mutation_rate=5"),
    *_quotas(APP, BYTES),
    *_quotas(f"{DAVE} {APP}", BYTES),
    *_quotas(DEFAULT_USER, BYTES),
    *_quotas(DEFAULT_APP, BYTES),
    *_quotas(f"{DEFAULT_USER} {APP}", BYTES),
    *_quotas(ADDRESS, "connection_creation_rate=10"),
    *_quotas("--entity-type ips --entity-default", "connection_creation_rate=10"),
    f"--alter {DAVE} --add-config {BYTES}",
    f"--alter {APP} --add-config {BYTES}",
    "--describe --entity-type users",
    "--describe --entity-type clients",
    f"--alter {DAVE} --add-config producer_byte_rate=-1",
    f"--alter {DAVE} --add-config nonsense=1",
    f"--alter {DAVE} --delete-config producer_byte_rate,consumer_byte_rate",
    f"--alter {APP} --delete-config producer_byte_rate,consumer_byte_rate",
]


@shows(CONFIGS, "adds, describes and deletes quotas of users, client ids, their defaults and addresses")
def test_quotas(kafkas, ours, version):
    seen = check_same(kafkas, ours, version, CONFIGS, QUOTA_COMMANDS)
    assert "producer_byte_rate=1024.0" in " ".join(seen[1]["lines"])
    assert "producer_byte_rate" not in " ".join(seen[3]["lines"])
