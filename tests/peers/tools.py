"""Apache Kafka's command-line tools, which are the Java client: of the last 3.x and of the newest version."""

import pytest
from tests.peers.support import available, said

from peers import kafka

CLIENT = "Kafka's tools (Java client)"


class Tools:
    """The tools of one version, pointed at one broker."""

    def __init__(self, version: str, bootstrap: str) -> None:
        self.version, self.bootstrap = version, bootstrap

    def run(self, name: str, *arguments: str, text: str = "", seconds: float = 120):
        address = ("--bootstrap-server", self.bootstrap)
        return kafka.run_tool(name, *address, *arguments, version=self.version, text=text, seconds=seconds)

    def say(self, name: str, *arguments: str, text: str = "") -> str:
        return said(self.run(name, *arguments, text=text))

    def create(self, topic: str, partitions: int = 1) -> str:
        self.say("topics", "--create", "--topic", topic, "--partitions", str(partitions))
        return topic

    def produce(self, topic: str, *lines: str, options: tuple[str, ...] = ()) -> None:
        self.say("console-producer", "--topic", topic, *options, text="".join(f"{line}\n" for line in lines))

    def consume(self, topic: str, count: int, *options: str) -> list[str]:
        limits = ("--max-messages", str(count), "--timeout-ms", "30000")
        out = self.say("console-consumer", "--topic", topic, "--from-beginning", *limits, *options)
        return [line for line in out.splitlines() if line]


@pytest.fixture(params=kafka.VERSIONS)
def version(request) -> str:
    available(lambda: kafka.jars(request.param))
    return request.param


@pytest.fixture
def tools(version, bootstrap) -> Tools:
    return Tools(version, bootstrap)
