"""Creating, growing and deleting topics, and deleting records."""

from functools import partial
from typing import Any

from tests.peers.differential.subject import Subject, probe
from tests.peers.differential.wire import make, plain

from millpond.protocol.messages import metadata, topics

UNKNOWN_ID = bytes(range(1, 17))


def _brief(answer: dict[str, Any]) -> dict[str, Any]:
    kept = ("error_code", "message", "num_partitions", "replication_factor", "topic_config_error_code")
    return {key: answer[key] for key in kept}


@probe
def create_a_topic(subject: Subject) -> Any:
    name = subject.name()
    made = subject.create(name, 3)
    configs = {each["name"]: each["value"] for each in made["configs"] or []}
    return {**_brief(made), "id": made["topic_id"], "configs": configs}


@probe
def create_a_topic_with_settings(subject: Subject) -> Any:
    made = subject.create(subject.name(), configs={"retention_ms": "1000", "cleanup_policy": "compact"})
    return [each for each in made["configs"] if each["name"] in ("retention.ms", "cleanup.policy")]


@probe
def create_with_names_that_are_not_allowed(subject: Subject) -> Any:
    names = ["", ".", "..", "a b", "a/b", "ü", "a" * 249, "a" * 250, "a:b", "a,b", "\n", "__consumer_offsets"]
    return {name[:20] + f" ({len(name)})": _brief(subject.create(name, validate_only=True)) for name in names}


@probe
def create_with_counts_that_are_not_allowed(subject: Subject) -> Any:
    cases = [(0, 1), (-1, 1), (-2, 1), (1, 0), (1, -1), (1, -2), (1, 2), (1, 3), (0, 0), (-1, -1)]
    return {
        f"{count}, {factor}": _brief(subject.create(subject.name(), count, factor)) for count, factor in cases
    }


@probe
def create_with_a_great_many_partitions(subject: Subject) -> Any:
    return _brief(subject.create(subject.name(), 100_000, validate_only=True))


@probe
def create_what_exists(subject: Subject) -> Any:
    name = subject.topic()
    return {
        "again": _brief(subject.create(name)),
        "again, only to check": _brief(subject.create(name, validate_only=True)),
        "with a dot for a dash": _brief(subject.create(name.replace("-", "."), validate_only=True)),
    }


@probe
def create_names_that_collide_in_metrics(subject: Subject) -> Any:
    name = subject.name(".a_b")
    return {
        "first": _brief(subject.create(name)),
        "other": _brief(subject.create(name.replace("_", "."))),
    }


@probe
def create_the_same_twice_in_one_request(subject: Subject) -> Any:
    name, other = subject.name(), subject.name()
    wanted = [make(topics.CreatableTopic, each, 1, 1) for each in (name, name, other)]
    answer = subject.tell(make(topics.CreateTopicsRequest, wanted), 7)
    return {each["name"]: _brief(each) for each in answer["topics"]}


@probe
def create_only_to_check(subject: Subject) -> Any:
    name = subject.name()
    checked = subject.create(name, 2, validate_only=True)
    request = make(metadata.MetadataRequest, [make(metadata.MetadataRequestTopic, name=name)], False)
    after = subject.tell(request, 9)["topics"][0]["error_code"]
    return {**_brief(checked), "id": checked["topic_id"], "after": after}


@probe
def create_with_assignments(subject: Subject) -> Any:
    answer = subject.ask(make(metadata.MetadataRequest, []), 9)
    node = answer.brokers[0].node_id

    def assigned(*rows: tuple[int, list[int]], count: int = -1, factor: int = -1) -> Any:
        rows_sent = [make(topics.CreatableReplicaAssignment, *row) for row in rows]
        return _brief(subject.create(subject.name(), count, factor, assignments=rows_sent))

    return {
        "good": assigned((0, [node]), (1, [node])),
        "with a count": assigned((0, [node]), count=1),
        "with a factor": assigned((0, [node]), factor=1),
        "unknown broker": assigned((0, [node + 77])),
        "gap": assigned((0, [node]), (2, [node])),
        "twice": assigned((0, [node]), (0, [node])),
        "no brokers": assigned((0, [])),
        "broker twice": assigned((0, [node, node])),
    }


@probe
def create_with_settings_that_are_not_allowed(subject: Subject) -> Any:
    cases: dict[str, dict[str, Any]] = {
        "unknown": {"no_such_thing": "1"},
        "not a number": {"retention_ms": "soon"},
        "out of range": {"retention_ms": "-2"},
        "unknown policy": {"cleanup_policy": "burn"},
        "null": {"retention_ms": None},
        "min isr": {"min_insync_replicas": "0"},
        "timestamp type": {"message_timestamp_type": "Sometimes"},
        "compression": {"compression_type": "rar"},
        "empty policy": {"cleanup_policy": ""},
        "min isr above factor": {"min_insync_replicas": "2"},
        "remote storage": {"remote_storage_enable": "true"},
    }
    return {kind: _brief(subject.create(subject.name(), configs=each)) for kind, each in cases.items()}


def _grown(subject: Subject, topic: str, count: int, **rest: Any) -> Any:
    wanted = make(topics.CreatePartitionsTopic, topic, count, rest.pop("assignments", None))
    request = make(topics.CreatePartitionsRequest, [wanted], 10_000, rest.pop("validate_only", False))
    return subject.tell(request, 3)["results"][0]


@probe
def grow_a_topic(subject: Subject) -> Any:
    name = subject.topic(2)
    counts = (2, 1, 0, -1, 4, 3)
    return {
        "only to check": _grown(subject, name, 3, validate_only=True),
        "far too many": _grown(subject, name, 200_000, validate_only=True),
        **{f"to {count}": _grown(subject, name, count) for count in counts},
        "unknown topic": _grown(subject, subject.name(), 3),
        "empty name": _grown(subject, "", 3),
    }


@probe
def grow_a_topic_with_assignments(subject: Subject) -> Any:
    node = subject.ask(make(metadata.MetadataRequest, []), 9).brokers[0].node_id

    def assigned(*rows: list[int]) -> Any:
        given = [make(topics.CreatePartitionsAssignment, row) for row in rows]
        return _grown(subject, subject.topic(1), 3, assignments=given)

    return {
        "good": assigned([node], [node]),
        "unknown broker": assigned([node], [node + 77]),
        "too few": assigned([node]),
        "too many": assigned([node], [node], [node]),
        "no broker": assigned([node], []),
    }


@probe
def grow_the_same_twice_in_one_request(subject: Subject) -> Any:
    name = subject.topic()
    wanted = [make(topics.CreatePartitionsTopic, name, count) for count in (2, 3)]
    return subject.tell(make(topics.CreatePartitionsRequest, wanted, 10_000), 3)


@probe
def delete_topics(subject: Subject) -> Any:
    name, named, by_id = subject.topic(), subject.topic(), subject.topic()
    state = partial(make, topics.DeleteTopicState)
    known = subject.topic_id(by_id)

    def deleted(*wanted: Any) -> Any:
        return subject.tell(make(topics.DeleteTopicsRequest, topics=list(wanted), timeout_ms=10_000), 6)[
            "responses"
        ]

    old = make(topics.DeleteTopicsRequest, topic_names=[name, subject.name()], timeout_ms=10_000)
    return {
        "v5": subject.tell(old, 5),
        "by name": deleted(state(named)),
        "by name again": deleted(state(named)),
        "name and id": deleted(state(by_id, known)),
        "by id": deleted(state(None, known)),
        "by id again": deleted(state(None, known)),
        "unknown id": deleted(state(None, UNKNOWN_ID)),
        "neither": deleted(state(None, bytes(16))),
        "invalid name": deleted(state("a/b")),
        "none": deleted(),
    }


@probe
def delete_the_same_twice_in_one_request(subject: Subject) -> Any:
    name = subject.topic()
    state = partial(make, topics.DeleteTopicState)
    wanted = [state(name), state(name)]
    by_both = [state(name), state(None, subject.topic_id(name))]
    twice = subject.tell(make(topics.DeleteTopicsRequest, topics=wanted, timeout_ms=10_000), 6)
    both = subject.tell(make(topics.DeleteTopicsRequest, topics=by_both, timeout_ms=10_000), 6)
    return {"by name": twice, "by name and by id": both}


@probe
def a_topic_made_again_is_empty(subject: Subject) -> Any:
    name = subject.topic()
    subject.write(name, "a", "b")
    before = subject.topic_id(name)
    state = make(topics.DeleteTopicState, name)
    subject.ask(make(topics.DeleteTopicsRequest, topics=[state], timeout_ms=10_000), 6)
    made = subject.until(lambda: subject.create(name), lambda each: each["error_code"] == "NONE")
    again = subject.until(lambda: subject.list_offset(name, -1), lambda each: each["error_code"] == "NONE")
    return {"made": _brief(made), "new id": subject.topic_id(name) != before, "end": again}


@probe
def delete_records(subject: Subject) -> Any:
    name = subject.topic(2)
    subject.write(name, *"abcde")

    def deleted(offset: int, partition: int = 0, topic: str = name) -> Any:
        wanted = make(
            topics.DeleteRecordsTopic, topic, [make(topics.DeleteRecordsPartition, partition, offset)]
        )
        answer = subject.tell(make(topics.DeleteRecordsRequest, [wanted], 10_000), 2)
        return answer["topics"][0]["partitions"][0]

    return {
        "to 2": deleted(2),
        "to 1, which is gone": deleted(1),
        "to 6, past the end": deleted(6),
        "to -2": deleted(-2),
        "start after": subject.list_offset(name, -2),
        "below the start": subject.fetch(name, 1),
        "from the start": subject.fetch(name, 2),
        "to the end": deleted(-1),
        "at the end": subject.fetch(name, 5, max_wait_ms=0),
        "earliest then": subject.list_offset(name, -2),
        "empty partition": deleted(-1, 1),
        "unknown partition": deleted(0, 9),
        "unknown topic": deleted(0, 0, subject.name()),
    }


@probe
def delete_records_of_a_compacted_topic(subject: Subject) -> Any:
    name = subject.topic(cleanup_policy="compact")
    wanted = make(topics.DeleteRecordsTopic, name, [make(topics.DeleteRecordsPartition, 0, -1)])
    return plain(subject.ask(make(topics.DeleteRecordsRequest, [wanted], 10_000), 2))
