"""Apache Kafka: one broker on loopback (KRaft, one node), and its command-line tools, which use the Java
client.

A version is a folder of jars from Maven. The broker runs with its defaults; `settings` are lines of its
server.properties: `{"log.flush.interval.messages": "1"}` makes it fsync each batch, as Millpond does.
"""

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from peers import registries, server
from peers.home import SOURCES, Unavailable, installed, program, run
from peers.server import Server, free_port

VERSION = "4.3.1"
OLDER_CLIENT = "3.9.2"
VERSIONS = (OLDER_CLIENT, VERSION)
BROKER_HEAP = "1g"
TOOL_HEAP = "512m"
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"

TOOLS = {
    "acls": "org.apache.kafka.tools.AclCommand",
    "configs": "kafka.admin.ConfigCommand",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "e2e-latency": "org.apache.kafka.tools.EndToEndLatency",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "groups": "org.apache.kafka.tools.GroupsCommand",
    "leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "console-share-consumer": "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
    "topics": "org.apache.kafka.tools.TopicCommand",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
    "verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
}
OLDER_TOOLS = {"acls": "kafka.admin.AclCommand", "console-producer": "kafka.tools.ConsoleProducer"}
"""Tools that had another class name in 3.x."""

QUICK_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
THROUGHPUT = ("-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")


def jars(version: str = VERSION) -> Path:
    """The folder of jars: broker, tools and client of that version."""
    purpose = f"Apache Kafka {version}"
    program("java", purpose)
    return installed(
        f"kafka-{version}",
        lambda folder: registries.maven(purpose, folder, "kafka", kafka_version=version),
    )


def java(
    lib: Path, main: str, *arguments: str, heap: str = TOOL_HEAP, options: tuple[str, ...] = THROUGHPUT
) -> list[str]:
    """The command that runs a class of these jars. Warnings and errors are logged to stderr."""
    classpath = f"{SOURCES / 'maven'}:{lib}/*"
    memory = (f"-Xms{heap}", f"-Xmx{heap}")
    return [program("java", "Apache Kafka"), *memory, *options, "-cp", classpath, main, *arguments]


def tool(name: str, *arguments: str, version: str = VERSION, quick: bool = False) -> list[str]:
    """The command of a tool, `tool("topics", "--list", …)`. `quick` starts faster and runs slower."""
    main = main_class(name, version)
    return java(jars(version), main, *arguments, options=QUICK_START if quick else THROUGHPUT)


def main_class(name: str, version: str = VERSION) -> str:
    """The class of a tool."""
    if name not in TOOLS:
        raise Unavailable(f"There is no tool {name}; there are {', '.join(TOOLS)}.")
    return TOOLS[name] if not version.startswith("3.") else OLDER_TOOLS.get(name, TOOLS[name])


@contextmanager
def running(folder: Path, settings: Mapping[str, str] | None = None, port: int = 0) -> Iterator[Server]:
    """A broker for the duration of a `with` block; `server.address` is the bootstrap address for clients."""
    with server.running(plan(folder, settings or {}, port)) as started:
        yield started


def plan(folder: Path, settings: Mapping[str, str], port: int = 0) -> server.Plan:
    """Write the broker's settings, and format its folder unless that was done before."""
    lib = jars()
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    port = port or free_port()
    file = folder / "server.properties"
    properties = {**_properties(folder, port, free_port()), **settings}
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    if not (folder / "data" / "meta.properties").exists():
        _format(lib, file)
    command = java(lib, "kafka.Kafka", str(file), heap=BROKER_HEAP)
    return server.Plan("kafka", folder, port, command)


def _properties(folder: Path, port: int, controller: int) -> dict[str, str]:
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(folder / "data"),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }


def _format(lib: Path, file: Path) -> None:
    main = "kafka.tools.StorageTool"
    command = java(lib, main, "format", "-t", CLUSTER_ID, "-c", str(file), options=QUICK_START)
    run("Formatting Kafka's folder", [*command])


def run_tool(
    name: str, *arguments: str, version: str = VERSION, seconds: float = 120, text: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a tool to its end and return its output; `text` is its standard input."""
    command = tool(name, *arguments, version=version, quick=True)
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=seconds, check=False)
