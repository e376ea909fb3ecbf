"""Client programs in other languages. Ours take a scenario and a broker and print one JSON object, so that
their tests read like any other. kcat is Debian's package."""

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from peers import connect, kafka, registries
from peers.home import ROOT, SOURCES, Unavailable, installed, program, run

RUN_SECONDS_MAX = 180
PYSPARK = "4.2.0"
KAFKAJS = json.loads((SOURCES / "kafkajs" / "package.json").read_text())["dependencies"]["kafkajs"]
NODE_GRPC = json.loads((SOURCES / "node-grpc" / "package.json").read_text())["dependencies"]["@grpc/grpc-js"]
PNPM = json.loads((SOURCES / "pnpm" / "package.json").read_text())["dependencies"]["pnpm"]
SCHEMAS = ROOT / "proto"
KCAT = "1.7.1"
PROMETHEUS = "2.42"
FRANZ_GO = "1.22.2"
FASTSTREAM = "0.7.8"
QUIX_STREAMS = "3.28.1"
FAUST = "0.15.3"
FLINK = "2.2.1"
FLINK_KAFKA = "5.0.0-2.2"
FLINK_HEAP = "512m"
OPENED_TO_FLINK = (
    "java.lang",
    "java.util",
    "java.util.concurrent",
    "java.lang.invoke",
    "java.net",
    "java.time",
)
"""Packages that Flink's serializers look into."""


@dataclass(frozen=True, slots=True)
class Program:
    """A command, and the environment variables that it needs."""

    command: list[str]
    environment: Mapping[str, str] = field(default_factory=dict)

    def run(
        self, *arguments: str, text: str = "", seconds: float = RUN_SECONDS_MAX
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.command, *arguments],
            env={**os.environ, **self.environment},
            input=text,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def ask(self, *arguments: str, seconds: float = RUN_SECONDS_MAX) -> dict[str, Any]:
        """Run the program and return its last line of output as JSON. Raises an error with its log if there
        is none."""
        done = self.run(*arguments, seconds=seconds)
        lines = done.stdout.strip().splitlines()
        if done.returncode != 0 or not lines:
            said = (done.stderr + done.stdout)[-3000:]
            raise RuntimeError(
                f"{Path(self.command[0]).name} {arguments} ended with {done.returncode}: {said}"
            )
        answer: dict[str, Any] = json.loads(lines[-1])
        return answer


def kcat() -> Program:
    """The kcat on the PATH, or Debian's package unpacked into our folder."""
    if found := shutil.which("kcat"):
        return Program([found])
    folder = installed(f"kcat-{KCAT}", lambda part: registries.debian("kcat", part, "kcat"))
    libraries = {str(each.parent) for each in folder.rglob("*.so*")}
    return Program([str(folder / "usr/bin/kcat")], {"LD_LIBRARY_PATH": ":".join(sorted(libraries))})


def prometheus() -> Path:
    """The folder of `prometheus` and `promtool`: those on the PATH, or Debian's package unpacked into our folder."""
    if found := shutil.which("promtool"):
        return Path(found).parent
    folder = installed(
        f"prometheus-{PROMETHEUS}", lambda part: registries.debian("prometheus", part, "prometheus")
    )
    return folder / "usr/bin"


def kafkajs() -> Program:
    folder = installed(
        f"kafkajs-{KAFKAJS}-{_fingerprint('kafkajs')}",
        lambda part: registries.npm("kafkajs", part, SOURCES / "kafkajs"),
    )
    quiet = {"KAFKAJS_NO_PARTITIONER_WARNING": "1"}
    return Program([program("node", "kafkajs"), "--no-warnings", str(folder / "run.js")], quiet)


def node_grpc() -> Program:
    """It receives the folder of our schemas when it runs."""
    folder = installed(
        f"node-grpc-{NODE_GRPC}-{_fingerprint('node-grpc')}",
        lambda part: registries.npm("gRPC for Node.js", part, SOURCES / "node-grpc"),
    )
    return Program([program("node", "gRPC for Node.js"), "--no-warnings", str(folder / "run.js")])


def pnpm() -> Path:
    """The folder that must be on the PATH to run `pnpm`."""
    folder = installed(
        f"pnpm-{PNPM}-{_fingerprint('pnpm')}",
        lambda part: registries.npm("pnpm", part, SOURCES / "pnpm"),
    )
    return folder / "node_modules" / ".bin"


def franz_go() -> Program:
    folder = installed(
        f"franz-go-{FRANZ_GO}-{_fingerprint('franz-go')}",
        lambda part: registries.go_build("franz-go", part, SOURCES / "franz-go", "client"),
    )
    return Program([str(folder / "bin" / "client")])


def spark() -> Program:
    """Spark in a separate virtual environment, with its Kafka connector as jars."""
    program("java", "Spark")
    jars = spark_jars()
    folder = installed(
        f"pyspark-{PYSPARK}", lambda part: registries.pip("Spark", part, f"pyspark=={PYSPARK}")
    )
    script = str(SOURCES / "spark" / "run.py")
    given = {
        "PEERS_SPARK_JARS": ",".join(map(str, sorted(jars.glob("*.jar")))),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    return Program([str(folder / "bin" / "python"), script], given)


def spark_jars() -> Path:
    """The jars of the connector and of its dependencies that are not in pyspark, for `spark.jars`."""
    return installed(
        f"spark-kafka-{PYSPARK}",
        lambda part: registries.maven("Spark's Kafka connector", part, "spark-kafka", spark_version=PYSPARK),
    )


def faststream() -> Program:
    """FastStream on aiokafka and on confluent-kafka."""
    package = f"faststream[kafka,confluent]=={FASTSTREAM}"
    return _framework("FastStream", f"faststream-{FASTSTREAM}", package, "copy_with_faststream.py")


def quix_streams() -> Program:
    package = f"quixstreams=={QUIX_STREAMS}"
    return _framework("Quix Streams", f"quixstreams-{QUIX_STREAMS}", package, "count_with_quix_streams.py")


def faust() -> Program:
    return _framework("Faust", f"faust-{FAUST}", f"faust-streaming=={FAUST}", "count_with_faust.py")


def _framework(purpose: str, folder: str, package: str, script: str) -> Program:
    """A script of ours in a virtual environment of its own."""
    place = installed(folder, lambda part: registries.pip(purpose, part, package))
    return Program([str(place / "bin" / "python"), str(SOURCES / "frameworks" / script)])


def flink() -> Program:
    """A job on Flink's Kafka connector. It is compiled before: a job's classes must be on the classpath."""
    purpose = "Flink's Kafka connector"
    program("java", purpose)
    versions = {"flink_version": FLINK, "connector_version": FLINK_KAFKA}
    lib = installed(
        f"flink-{FLINK}-{FLINK_KAFKA}", lambda part: registries.maven(purpose, part, "flink", **versions)
    )
    javac = [program("javac", purpose), "-nowarn", "-cp", f"{lib}/*", SOURCES / "flink" / "Copy.java", "-d"]
    classes = installed(
        f"flink-job-{FLINK}-{_fingerprint('flink')}", lambda part: run(purpose, [*javac, part])
    )
    opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED_TO_FLINK]
    classpath = f"{SOURCES / 'maven'}:{classes}:{lib}/*"
    memory = (f"-Xmx{FLINK_HEAP}", *kafka.QUICK_START)
    return Program([program("java", purpose), *memory, *opened, "-cp", classpath, "Copy"])


def translate() -> Program:
    """MirrorMaker 2's RemoteClusterUtils, which translates the offsets of a group."""
    return _compiled_when_run("MirrorMaker 2", "mirror/Translate.java", kafka.VERSION, connect.jars())


def streams(version: str = kafka.VERSION) -> Program:
    """Kafka Streams: one Java file, compiled when it is run."""
    return _compiled_when_run("Kafka Streams", "streams/WordCount.java", version)


def authorizer() -> Program:
    """Kafka's StandardAuthorizer, which decides about ACLs that it is given."""
    return _compiled_when_run("Kafka's authorizer", "authorizer/Authorize.java", kafka.VERSION)


def assignors() -> Program:
    """Kafka's server-side assignors, which divide the partitions of groups that they are given."""
    return _compiled_when_run("Kafka's assignors", "assignors/Assign.java", kafka.VERSION)


def java_login(version: str = kafka.VERSION) -> Program:
    """Kafka's Java client with TLS and a login."""
    return _compiled_when_run("Kafka's Java client", "java-login/Login.java", version)


def java_tools(version: str = kafka.VERSION) -> Program:
    """Kafka's command-line tools, many commands in one process."""
    return _compiled_when_run("Kafka's tools", "java-tools/Tools.java", version)


def java_members(version: str = kafka.VERSION) -> Program:
    """Consumers of Kafka's Java client as members of the consumer protocol."""
    return _compiled_when_run("Kafka's Java client", "consumer-protocol/Members.java", version)


def java_share_members(version: str = kafka.VERSION) -> Program:
    """Share consumers of Kafka's Java client."""
    return _compiled_when_run("Kafka's Java client", "share-groups/Shares.java", version)


def java_share_member(version: str = kafka.VERSION) -> Program:
    """One share consumer of Kafka's Java client, which logs what it does."""
    return _compiled_when_run("Kafka's Java client", "share-groups/Sharer.java", version)


def _compiled_when_run(purpose: str, source: str, version: str, lib: Path | None = None) -> Program:
    """One Java file."""
    lib = lib or kafka.jars(version)
    if shutil.which("javac") is None:
        raise Unavailable(f"{purpose} needs a Java compiler (`javac`), which is not on the PATH.")
    return Program(kafka.java(lib, str(SOURCES / source), options=kafka.QUICK_START))


def _fingerprint(folder: str) -> str:
    """A hash of the program's sources, so that a change triggers a new build."""
    digest = hashlib.sha256()
    for source in sorted((SOURCES / folder).iterdir()):
        if source.is_file():
            digest.update(source.name.encode() + source.read_bytes())
    return digest.hexdigest()[:8]
