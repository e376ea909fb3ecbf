"""The broker under observation, with the few requests that most probes need, and the list of all probes."""

import itertools
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, Self

from tests.peers.differential.wire import CLOSED, SILENT, Wire, error_name, make, plain

from millpond.protocol.messages import (
    fetch,
    group_admin,
    groups,
    metadata,
    offsets,
    produce,
    topics,
    transactions,
)
from millpond.records import Record, build_batch, iter_records, walk

LENGTH_END = 12
DECOMPRESSED_BYTES_MAX = 1 << 24
SETTLE_SECONDS_MAX = 15.0
NOT_READY = frozenset(
    (
        *("COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR"),
        *("CONCURRENT_TRANSACTIONS", "LEADER_NOT_AVAILABLE", "NOT_LEADER_OR_FOLLOWER", "NOT_ENOUGH_REPLICAS"),
    )
)

Probe = Callable[["Subject"], Any]
PROBES: dict[str, Probe] = {}


def probe(function: Probe) -> Probe:
    """Registers a probe under its own name."""
    name = function.__name__
    assert name not in PROBES, f"two probes are called {name}"
    PROBES[name] = function
    return function


class Subject:
    """One broker, during one probe: its topics and groups have names of their own."""

    def __init__(self, address: str, probe_name: str, run: str) -> None:
        self.address = address
        self._open = ExitStack()
        self.wire = self.another()
        self._stem = f"{probe_name.replace('_', '-')}-{run}"
        self._numbers = itertools.count(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def name(self, suffix: str = "") -> str:
        """A name nobody used yet, the same in every run but for the run's own number."""
        return f"{self._stem}-{next(self._numbers)}{suffix}"

    def another(self) -> Wire:
        """A second connection, for what happens at the same time. Closed with the others at the end."""
        return self._open.enter_context(Wire(self.address))

    def ask(self, message: Any, version: int) -> Any:
        return self.wire.ask(message, version)

    def tell(self, message: Any, version: int) -> Any:
        """The answer as plain data. Anew on a new connection when the broker hangs up."""
        answer = plain(self.ask(message, version))
        if answer in (CLOSED, SILENT):
            self.wire = self.another()
        return answer

    def topic(self, partitions: int = 1, **configs: str) -> str:
        name = self.name()
        made = self.create(name, partitions, configs=configs)
        assert made["error_code"] == "NONE", made
        for partition in range(partitions):
            self._until_led(name, partition)
        return name

    def create(self, name: str, partitions: int = 1, factor: int = 1, **rest: Any) -> dict[str, Any]:
        configs = [
            make(topics.CreatableTopicConfig, *pair) for pair in dashed(rest.pop("configs", {})).items()
        ]
        validate_only = rest.pop("validate_only", False)
        wanted = make(topics.CreatableTopic, name, partitions, factor, configs=configs, **rest)
        request = make(topics.CreateTopicsRequest, [wanted], 30_000, validate_only)
        return plain(self.ask(request, 7))["topics"][0]

    def _until_led(self, name: str, partition: int) -> None:
        """Metadata knows a topic a moment before its leader does."""
        self.until(lambda: self.list_offset(name, -1, partition), lambda told: told["error_code"] == "NONE")

    def until(self, ask: Callable[[], Any], ready: Callable[[Any], bool]) -> Any:
        """The first answer that is `ready`, or the last one: a coordinator or a leader may have to be chosen first."""
        deadline = time.monotonic() + SETTLE_SECONDS_MAX
        while not ready(answer := ask()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return answer

    def settled(self, message: Any, version: int) -> Any:
        """The answer as plain data, once it is not "ask again"."""
        return self.until(lambda: self.tell(message, version), lambda answer: not _says_wait(answer))

    def topic_id(self, name: str) -> bytes:
        request = make(metadata.MetadataRequest, [make(metadata.MetadataRequestTopic, name=name)])
        return bytes(self.ask(request, 12).topics[0].topic_id)

    def produce(
        self,
        topic: str,
        batch: bytes | None,
        partition: int = 0,
        acks: int = -1,
        version: int = 9,
        **rest: Any,
    ) -> Any:
        """What the broker says of one batch: the answer's only partition."""
        data = make(
            produce.TopicProduceData,
            name=topic,
            topic_id=rest.pop("topic_id", bytes(16)),
            partition_data=[make(produce.PartitionProduceData, partition, batch)],
        )
        request = make(
            produce.ProduceRequest,
            transactional_id=rest.pop("transactional_id", None),
            acks=acks,
            timeout_ms=10_000,
            topic_data=[data],
        )
        answer = self.tell(request, version)
        return answer if isinstance(answer, str) else _told_produce(answer["responses"][0])

    def write(self, topic: str, *values: str, partition: int = 0, timestamp: int | None = None) -> int:
        """Produces the values, one batch each, and gives the first's offset."""
        offsets_seen = []
        for step, value in enumerate(values):
            at = now_ms() if timestamp is None else timestamp + step
            answer = self.produce(topic, batch_of(value, now_ms=at), partition)
            assert answer["error_code"] == "NONE", answer
            offsets_seen.append(answer["base_offset"])
        return offsets_seen[0] if offsets_seen else -1

    def fetch(self, topic: str, offset: int, partition: int = 0, version: int = 11, **rest: Any) -> Any:
        """The answer's only partition, with its records decoded."""
        part = make(
            fetch.FetchPartition,
            partition=partition,
            fetch_offset=offset,
            partition_max_bytes=rest.pop("partition_max_bytes", 1 << 20),
            current_leader_epoch=rest.pop("current_leader_epoch", -1),
            last_fetched_epoch=rest.pop("last_fetched_epoch", -1),
        )
        request = make(
            fetch.FetchRequest,
            max_wait_ms=rest.pop("max_wait_ms", 500),
            min_bytes=rest.pop("min_bytes", 1),
            topics=[
                make(
                    fetch.FetchTopic, topic=topic, topic_id=rest.pop("topic_id", bytes(16)), partitions=[part]
                )
            ],
            **rest,
        )
        answer = self.ask(request, version)
        return told_fetch(answer)

    def epoch(self, topic: str) -> int:
        """The epoch of the topic's first leader: Kafka counts from 0, which means nothing."""
        request = make(metadata.MetadataRequest, [make(metadata.MetadataRequestTopic, name=topic)])
        return int(self.ask(request, 9).topics[0].partitions[0].leader_epoch)

    def end_offset(self, topic: str, partition: int = 0, isolation: int = 0) -> int:
        return int(self.list_offset(topic, -1, partition, isolation=isolation)["offset"])

    def list_offset(
        self, topic: str, timestamp: int, partition: int = 0, version: int = 7, **rest: Any
    ) -> Any:
        part = make(
            offsets.ListOffsetsPartition,
            partition_index=partition,
            timestamp=timestamp,
            current_leader_epoch=rest.pop("epoch", -1),
        )
        request = make(
            offsets.ListOffsetsRequest,
            replica_id=-1,
            isolation_level=rest.pop("isolation", 0),
            topics=[make(offsets.ListOffsetsTopic, topic, [part])],
        )
        answer = self.tell(request, version)
        return answer if isinstance(answer, str) else answer["topics"][0]["partitions"][0]

    def coordinator(self, key: str, kind: int = 0) -> None:
        """Waits until a group or transaction has a coordinator."""
        request = make(groups.FindCoordinatorRequest, key_type=kind, coordinator_keys=[key])
        self.settled(request, 4)

    def producer(self, transactional_id: str | None = None, timeout_ms: int = 60_000) -> tuple[int, int]:
        """A producer's id and epoch."""
        if transactional_id is not None:
            self.coordinator(transactional_id, 1)
        request = make(transactions.InitProducerIdRequest, transactional_id, timeout_ms)
        answer = self.until(
            lambda: self.ask(request, 4), lambda each: error_name(each.error_code) not in NOT_READY
        )
        assert answer.error_code == 0, plain(answer)
        return answer.producer_id, answer.producer_epoch

    def group_state(self, group: str) -> Any:
        answer = self.tell(make(group_admin.DescribeGroupsRequest, [group]), 5)
        found = answer["groups"][0]
        found["members"] = len(found["members"])
        return found


def dashed(configs: dict[str, str]) -> dict[str, str]:
    """`retention_ms` is written `retention.ms`."""
    return {key.replace("_", "."): value for key, value in configs.items()}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def batch_of(*values: str, key: bytes | None = None, **rest: Any) -> bytes:
    """A batch of those values; its time is now unless `now_ms` says otherwise."""
    records = [Record(value.encode(), key) for value in values]
    return build_batch(records, **{"now_ms": now_ms(), **rest})


def _told_produce(topic: dict[str, Any]) -> dict[str, Any]:
    """The only partition. With an error, where the log starts is told by chance: it depends on who refused."""
    told: dict[str, Any] = topic["partition_responses"][0]
    if told["error_code"] != "NONE":
        del told["log_start_offset"]
    return told


def told_fetch(answer: Any) -> Any:
    """The only partition of a Fetch answer: its errors, its offsets, and its records."""
    if isinstance(answer, str):
        return answer
    if answer.error_code or not answer.responses:
        return {"error_code": error_name(answer.error_code), "topics": len(answer.responses)}
    part = answer.responses[0].partitions[0]
    data = _whole_batches(b"".join(bytes(each) for each in part.records or ()))
    told = plain(part)
    told.pop("preferred_read_replica")
    told["records"] = told_records(data)
    told["batches"] = [_told_batch(header) for _, header in walk(data)]
    return told


def _whole_batches(data: bytes) -> bytes:
    """Without the last batch if it is cut: a limit in bytes may fall inside of it."""
    position = 0
    while position + LENGTH_END <= len(data):
        (length,) = struct.unpack_from(">i", data, position + 8)
        if position + LENGTH_END + length > len(data):
            break
        position += LENGTH_END + length
    return data[:position]


def told_records(data: bytes) -> list[Any]:
    found = iter_records(data, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX)
    return [[each.offset, (each.value or b"").decode(errors="replace")[:40]] for each in found]


def _told_batch(header: Any) -> list[Any]:
    kind = "control" if header.is_control else "transactional" if header.is_transactional else "plain"
    return [header.base_offset, header.last_offset, kind, header.codec.name]


def _says_wait(answer: Any) -> bool:
    if isinstance(answer, dict):
        return any(_says_wait(each) for each in answer.values())
    if isinstance(answer, list):
        return any(_says_wait(each) for each in answer)
    return isinstance(answer, str) and answer in NOT_READY


def codes(answers: Sequence[Any]) -> list[Any]:
    """Only the error codes of some answers."""
    return [each["error_code"] if isinstance(each, dict) else each for each in answers]
