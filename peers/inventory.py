"""All peers by name: what each is, what its installation needs, and how to install it."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peers import connect, kafka, minio, nats, programs
from peers.home import home


@dataclass(frozen=True, slots=True)
class Peer:
    """`folder` is a pattern for the name of the installation folder; `command` is a program that the machine
    may already have."""

    name: str
    version: str
    needs: tuple[str, ...]
    install: Callable[[], Any]
    folder: str
    command: str = ""

    def place(self) -> Path | None:
        """Where it is installed, or None."""
        if self.command and (found := shutil.which(self.command)):
            return Path(found)
        found_here = sorted(path for path in home().glob(self.folder) if ".part-" not in path.name)
        return found_here[-1] if found_here else None

    def missing(self) -> list[str]:
        return [each for each in self.needs if shutil.which(each) is None]


PEERS = {
    peer.name: peer
    for peer in (
        Peer("kafka", kafka.VERSION, ("java", "mvn"), kafka.jars, f"kafka-{kafka.VERSION}"),
        Peer(
            "kafka-3.9",
            kafka.OLDER_CLIENT,
            ("java", "mvn"),
            lambda: kafka.jars(kafka.OLDER_CLIENT),
            f"kafka-{kafka.OLDER_CLIENT}",
        ),
        Peer("connect", connect.VERSION, ("java", "mvn"), connect.jars, f"connect-{connect.VERSION}"),
        Peer("debezium", connect.DEBEZIUM, ("java", "mvn"), connect.debezium, f"debezium-{connect.DEBEZIUM}"),
        Peer("spark", programs.PYSPARK, ("java", "mvn"), programs.spark, f"pyspark-{programs.PYSPARK}"),
        Peer("kafkajs", programs.KAFKAJS, ("node", "npm"), programs.kafkajs, f"kafkajs-{programs.KAFKAJS}-*"),
        Peer(
            "node-grpc",
            programs.NODE_GRPC,
            ("node", "npm"),
            programs.node_grpc,
            f"node-grpc-{programs.NODE_GRPC}-*",
        ),
        Peer("pnpm", programs.PNPM, ("node", "npm"), programs.pnpm, f"pnpm-{programs.PNPM}-*"),
        Peer("franz-go", programs.FRANZ_GO, ("go",), programs.franz_go, f"franz-go-{programs.FRANZ_GO}-*"),
        Peer(
            "kcat",
            programs.KCAT,
            ("apt-get", "apt-cache", "dpkg-deb"),
            programs.kcat,
            f"kcat-{programs.KCAT}",
            "kcat",
        ),
        Peer(
            "prometheus",
            programs.PROMETHEUS,
            ("apt-get", "apt-cache", "dpkg-deb"),
            programs.prometheus,
            f"prometheus-{programs.PROMETHEUS}",
            "prometheus",
        ),
        Peer(
            "flink",
            programs.FLINK,
            ("java", "javac", "mvn"),
            programs.flink,
            f"flink-{programs.FLINK}-{programs.FLINK_KAFKA}",
        ),
        Peer("faststream", programs.FASTSTREAM, (), programs.faststream, f"faststream-{programs.FASTSTREAM}"),
        Peer(
            "quixstreams",
            programs.QUIX_STREAMS,
            (),
            programs.quix_streams,
            f"quixstreams-{programs.QUIX_STREAMS}",
        ),
        Peer("faust", programs.FAUST, (), programs.faust, f"faust-{programs.FAUST}"),
        Peer("nats", nats.VERSION, (), nats.binary, f"nats-{nats.VERSION}-{nats.CLIENT}"),
        Peer("minio", minio.VERSION, ("go",), minio.binary, f"minio-{minio.VERSION}", "minio"),
    )
}

SERVERS = {"kafka": kafka.plan, "minio": minio.plan, "nats": nats.plan}
