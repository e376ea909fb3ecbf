"""Certificates, tokens and passwords are replaced while clients write and read over Kafka's protocol, gRPC and HTTP: no
request that was accepted fails, and what was revoked is refused by each broker within two seconds."""

import asyncio
import time
from pathlib import Path

import pytest
from tests.faults.processes import rotation, workload
from tests.faults.processes.checker import check_log, check_reader, log_of
from tests.faults.processes.harness import INTERFACES, Brokers, eventually
from tests.tls import Pki

import millpond
from millpond.catalog import security
from millpond.client import AclEntry
from millpond.client.secret_files import TokenFile
from millpond.security.scram import HASHES, new_credential
from millpond.testing import running_broker

TOPIC, QUIET, GROUP = "rotated", "quiet", "readers"
PARTITIONS = 6
PER_SECOND = 50.0
ADMIN, USER = "admin", "worker"
PASSWORD, NEXT_PASSWORD = "first password", "second password"
ITERATIONS = 4096
LOAD_SECONDS = 1.5
"""Of load before, between and after the rotations."""
STOP_SECONDS_MAX = 2.0
HANG_SECONDS = 60.0


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return Pki(tmp_path)


async def _prepare(brokers: Brokers) -> None:
    made = [
        new_credential(user, PASSWORD, mechanism, ITERATIONS, bytes)
        for user in (ADMIN, USER)
        for mechanism in HASHES
    ]
    async with running_broker(catalog=brokers.catalog, storage=brokers.storage) as broker:
        await broker.log.create_topic(TOPIC, PARTITIONS, {})
        await broker.log.create_topic(QUIET, PARTITIONS, {})
        await broker.log.write(lambda tx: security.put_credentials(tx, made))


class Cluster:
    """Three brokers with TLS and security, and who works with them."""

    def __init__(self, brokers: Brokers, pki: Pki, folder: Path) -> None:
        self.brokers, self.pki = brokers, pki
        self.probes: list[rotation.Probe] = []
        brokers.settings |= {
            **pki.settings(),
            "security": "on",
            "super_users": f"User:{ADMIN}",
            "password_iterations": str(ITERATIONS),
        }
        asyncio.run(_prepare(brokers))
        brokers.start(3)
        self.admin = millpond.Admin(
            address=brokers.addresses("grpc")[0],
            tls=str(pki.ca_path),
            username=ADMIN,
            password=PASSWORD,
        )
        self.admin.create_acls(
            [
                *(AclEntry("topic", name, f"User:{USER}", "all") for name in (TOPIC, QUIET)),
                AclEntry("group", GROUP, f"User:{USER}", "all"),
            ]
        )
        self.token = self.admin.create_token(f"User:{USER}")
        self.token_file = folder / "worker.token"
        rotation.replace_secret(self.token_file, self.token.text)
        self._start_load()

    def _start_load(self) -> None:
        kafka, grpc, http = (self.brokers.addresses(interface) for interface in INTERFACES)
        login = self.kafka_login(USER, PASSWORD)
        self.kafka_writer = workload.KafkaWriter("kafka", kafka, TOPIC, PARTITIONS, PER_SECOND, login=login)
        self.kafka_reader = workload.KafkaReader("member", kafka, TOPIC, GROUP, login)
        token = TokenFile("token", self.token_file)
        own = {"tls": str(self.pki.ca_path), "token": token}
        callers = [rotation.HttpCaller(address, self.pki.ca_path, token) for address in http[:2]]
        self.http_writer = rotation.HttpWriter("http", callers[0], TOPIC, PARTITIONS, PER_SECOND)
        self.writers = [
            self.kafka_writer,
            workload.MillpondWriter("client", grpc[1], TOPIC, PARTITIONS, PER_SECOND, login=own),
            self.http_writer,
        ]
        self.readers = [
            self.kafka_reader,
            workload.MillpondReader("reader", grpc[2], TOPIC, own),
            rotation.HttpReader("http reader", callers[1], TOPIC, PARTITIONS),
        ]
        for client in (*self.writers, *self.readers):
            client.start()

    def kafka_login(self, user: str, password: str) -> dict[str, str]:
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.pki.ca_path),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": password,
        }

    def load(self) -> None:
        """Time passes, and every writer gets on."""
        before = [len(each.attempts) for each in self.writers]
        time.sleep(LOAD_SECONDS)
        eventually(lambda: self._got_on(before), "every writer has written")

    def _got_on(self, before: list[int]) -> bool:
        for client in (*self.writers, *self.readers):
            client.check()
        return all(len(each.attempts) > count for each, count in zip(self.writers, before, strict=True))

    # -- rotations ---------------------------------------------------------------------------------------------

    def rotate_certificates(self) -> list[float]:
        """Seconds until each broker presents the new one on all its ports."""
        new = self.pki.install(self.pki.issue()).certificate.serial_number
        began = time.monotonic()
        for node in self.brokers.nodes:
            node.reload()
        took = []
        for node in self.brokers.nodes:
            ports = list(node.listeners.values())
            eventually(
                lambda ports=ports: {rotation.serial_number(each) for each in ports} == {new}, "reloaded"
            )
            took.append(time.monotonic() - began)
        return took

    def rotate_token(self) -> list[rotation.Probe]:
        """Create a second one, let the programs use it, delete the first."""
        proof, ca = f"Bearer {self.token.text}", self.pki.ca_path
        probes = []
        for node in self.brokers.nodes:
            grpc, http = node.listeners["grpc"], node.listeners["http"]
            probes += [
                rotation.Probe("token over gRPC", node, rotation.grpc_asks(grpc, ca, proof)),
                rotation.Probe("token over HTTP", node, rotation.http_asks(http, ca, proof)),
                rotation.Probe("token, idle HTTP stream", node, rotation.http_stream(http, ca, proof, QUIET)),
            ]
        new = self.admin.create_token(f"User:{USER}")
        self.probes += probes
        with rotation.probing(probes, HANG_SECONDS):
            rotation.replace_secret(self.token_file, new.text)
            self.load()
            self.admin.delete_token(self.token.id)
            self.revoked_at = time.monotonic()
        return probes

    def rotate_password(self) -> list[rotation.Probe]:
        ca = self.pki.ca_path
        probes = []
        for node in self.brokers.nodes:
            kafka, http = node.listeners["kafka"], node.listeners["http"]
            session, idle = (rotation.KafkaSession(kafka, ca, USER, PASSWORD) for _ in range(2))
            proof = rotation.basic(USER, PASSWORD)
            probes += [
                rotation.Probe("password over Kafka", node, session.asking),
                rotation.Probe("password, idle Kafka connection", node, idle.waiting),
                rotation.Probe("password over HTTP", node, rotation.http_asks(http, ca, proof)),
            ]
        self.probes += probes
        with rotation.probing(probes, HANG_SECONDS):
            self.load()
            for client in (self.kafka_writer, self.kafka_reader):
                client.set_password(USER, NEXT_PASSWORD)
            self.admin.set_password(USER, NEXT_PASSWORD)
            self.revoked_at = time.monotonic()
        return probes

    # -- the end -----------------------------------------------------------------------------------------------

    def judge(self) -> int:
        """Returns how many messages were acknowledged; all of them were."""
        for writer in self.writers:
            writer.stop()
        attempts = [each for writer in self.writers for each in writer.attempts]
        assert not self.http_writer.failures, self.http_writer.failures[:3]
        failed = [each for each in attempts if not each.acknowledged]
        assert not failed, failed[:3]
        login = self.kafka_login(USER, NEXT_PASSWORD) | {"group.id": GROUP}
        log = workload.read_everything(self.brokers.addresses("kafka"), TOPIC, PARTITIONS, login)
        wanted = {(each.partition, each.offset) for each in log}
        for reader in self.readers:
            eventually(lambda reader=reader: self._saw(reader, wanted), f"{reader.name} has seen all")
            reader.stop()
            verdict = check_reader(reader.seen, log_of(log))
            assert verdict.is_clean, f"{reader.name}: {verdict}"
        verdict = check_log(attempts, log_of(log))
        assert verdict.is_clean, str(verdict)
        return len(attempts)

    def _saw(self, reader: workload.Reader, wanted: set[tuple[int, int]]) -> bool:
        reader.check()
        return wanted <= {(each.partition, each.offset) for each in list(reader.seen)}

    def close(self) -> None:
        for client in (*self.writers, *self.readers):
            client.tell_to_stop()
        for probe in self.probes:
            probe.close()
        self.admin.close()


def test_credentials_are_rotated_under_load(
    brokers: Brokers, pki: Pki, tmp_path: Path, figures: list[str]
) -> None:
    cluster = Cluster(brokers, pki, tmp_path)
    try:
        cluster.load()
        late: dict[str, list[float]] = {}
        took = cluster.rotate_certificates()
        figures.append(
            f"rotation: SIGHUP to the new certificate on all ports, per broker {rotation.shown(took)} s"
        )
        cluster.load()
        for rotate in (cluster.rotate_token, cluster.rotate_password):
            probes = rotate()
            for kind, seconds in rotation.seconds_served(probes, cluster.revoked_at).items():
                figures.append(
                    f"rotation: {kind} served for {rotation.shown(seconds)} s after its end, per broker"
                )
                late |= {kind: seconds} if max(seconds) >= STOP_SECONDS_MAX else {}
            assert all(each.served > 0 for each in probes if "idle" not in each.kind)
            cluster.load()
        acknowledged = cluster.judge()
        figures.append(
            f"rotation of certificates, tokens and passwords, 3 brokers: acknowledged {acknowledged}, lost 0, failed 0"
        )
        assert not late, late
    finally:
        cluster.close()
