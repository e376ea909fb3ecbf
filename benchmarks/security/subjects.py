"""The compared brokers, with and without TLS, and with and without users and ACLs.

One Apache Kafka has a listener for each of the four; Millpond is a process for each. Both use the same certificates,
the same user and the same ACLs, and neither fsyncs less than it does by default. Kafka's controller listener is
plaintext, so its anonymous user is a super user; clients cannot use that listener.
"""

import json
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from peers.server import free_port

from benchmarks.kafka.subjects import DELETED_SOON, Subject, millpond
from millpond.security.development_ca import DevelopmentFiles, create_development_files
from peers import kafka

ANSWER_S_MAX = 60.0
ADMIN, USER = "admin", "bench"
MECHANISM = "SCRAM-SHA-512"
ITERATIONS = 8192
LOGIN_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
TOPICS, GROUP = "bench-", "bench"


@dataclass(frozen=True, slots=True)
class Level:
    """What a connection costs beside its requests. `protocol` is Kafka's name for it."""

    name: str
    protocol: str

    @property
    def has_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def has_users(self) -> bool:
        return self.protocol.startswith("SASL")


PLAINTEXT = Level("plaintext", "PLAINTEXT")
ACLS = Level("SCRAM and ACLs", "SASL_PLAINTEXT")
LEVELS = (
    PLAINTEXT,
    ACLS,
    Level("TLS", "SSL"),
    Level("TLS, SCRAM and ACLs", "SASL_SSL"),
)


@dataclass(frozen=True, slots=True)
class Brokers:
    """The brokers of one system by level, and the password of the user `bench`."""

    name: str
    by_level: Mapping[Level, Subject]
    password: str


@contextmanager
def millponds(folder: Path, files: DevelopmentFiles, levels: Sequence[Level] = LEVELS) -> Iterator[Brokers]:
    password = secrets.token_hex(16)
    with ExitStack() as running:
        found = {
            level: running.enter_context(_millpond(folder / level.protocol.lower(), level, files, password))
            for level in levels
        }
        yield Brokers("millpond", found, password)


@contextmanager
def apache(folder: Path, files: DevelopmentFiles) -> Iterator[Brokers]:
    password = secrets.token_hex(16)
    ports = {level: free_port() for level in LEVELS}
    settings = {**DELETED_SOON, **_kafka_settings(folder, files, ports)}
    begun = time.perf_counter()
    with kafka.running(folder, settings, ports[PLAINTEXT]) as server:
        started_s = time.perf_counter() - begun
        _add_user({"bootstrap.servers": server.address}, password)
        found = {
            level: Subject(
                "kafka",
                f"127.0.0.1:{port}",
                server.pid,
                started_s,
                _credentials(level, files, USER, password),
            )
            for level, port in ports.items()
        }
        yield Brokers("kafka", found, password)


def create_files(folder: Path) -> DevelopmentFiles:
    return create_development_files(folder, ())


@contextmanager
def _millpond(folder: Path, level: Level, files: DevelopmentFiles, password: str) -> Iterator[Subject]:
    settings = []
    if level.has_tls:
        settings += ["tls=on", f"tls_certificate={files.certificate}", f"tls_key={files.key}"]
    admin_password = ""
    if level.has_users:
        settings += ["security=on", f"super_users=User:{ADMIN}", "sasl_mechanisms=SCRAM-SHA-512"]
        admin_password = _create_admin(folder)
    with millpond(folder, settings=settings) as subject:
        if level.has_users:
            _add_user(
                {
                    "bootstrap.servers": subject.address,
                    **_credentials(level, files, ADMIN, admin_password),
                },
                password,
            )
        credentials = _credentials(level, files, USER, password)
        yield Subject(subject.name, subject.address, subject.pid, subject.started_s, credentials)


def _create_admin(folder: Path) -> str:
    """Creates the user in the catalog, as an operator would, and returns its password."""
    command = [sys.executable, "-m", "millpond", "security", "init", "--json", "--dir", f"{folder}-init"]
    done = subprocess.run([*command, "--data-dir", str(folder)], check=True, capture_output=True, text=True)
    return str(json.loads(done.stdout)["password"])


def _kafka_settings(folder: Path, files: DevelopmentFiles, ports: Mapping[Level, int]) -> dict[str, str]:
    controller = free_port()
    key_store = folder / "keystore.pem"
    folder.mkdir(parents=True, exist_ok=True)
    key_store.write_text(files.key.read_text() + files.certificate.read_text())
    listeners = ",".join(f"{level.protocol}://127.0.0.1:{port}" for level, port in ports.items())
    return {
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": listeners,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,"
        + ",".join(f"{level.protocol}:{level.protocol}" for level in ports),
        "inter.broker.listener.name": PLAINTEXT.protocol,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(key_store),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(files.ca),
        "sasl.enabled.mechanisms": MECHANISM,
        **{
            f"listener.name.{level.protocol.lower()}.{MECHANISM.lower()}.sasl.jaas.config": LOGIN_MODULE
            for level in ports
            if level.has_users
        },
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }


def _credentials(level: Level, files: DevelopmentFiles, user: str, password: str) -> dict[str, str]:
    found = {"security.protocol": level.protocol}
    if level.has_tls:
        found["ssl.ca.location"] = str(files.ca)
    if level.has_users:
        found |= {"sasl.mechanism": MECHANISM, "sasl.username": user, "sasl.password": password}
    return found


def _add_user(client: Mapping[str, object], password: str) -> None:
    """The user that measures: not a super user, so that ACLs decide about every request."""
    admin = AdminClient(dict(client))
    mechanism = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, ITERATIONS)
    upsertion = UserScramCredentialUpsertion(USER, mechanism, password.encode())
    for future in admin.alter_user_scram_credentials([upsertion]).values():
        future.result(ANSWER_S_MAX)
    wanted = [
        *(
            _acl(ResourceType.TOPIC, TOPICS, ResourcePatternType.PREFIXED, each)
            for each in (
                AclOperation.CREATE,
                AclOperation.DELETE,
                AclOperation.READ,
                AclOperation.WRITE,
            )
        ),
        _acl(ResourceType.GROUP, GROUP, ResourcePatternType.LITERAL, AclOperation.READ),
    ]
    for future in admin.create_acls(wanted).values():
        future.result(ANSWER_S_MAX)


def _acl(kind: ResourceType, name: str, pattern: ResourcePatternType, operation: AclOperation) -> AclBinding:
    return AclBinding(kind, name, pattern, f"User:{USER}", "*", operation, AclPermissionType.ALLOW)
