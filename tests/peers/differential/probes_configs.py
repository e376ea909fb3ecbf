"""Settings of topics and brokers, as an administrator sees and changes them."""

from typing import Any

from tests.peers.differential.subject import Subject, probe
from tests.peers.differential.wire import make

from millpond.protocol.messages import configs

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
CHANGING = frozenset(("message.format.version",))


def _described(subject: Subject, kind: int, name: str, keys: Any = None, **rest: Any) -> Any:
    wanted = make(configs.DescribeConfigsResource, kind, name, keys)
    answer = subject.tell(make(configs.DescribeConfigsRequest, [wanted], **rest), 4)
    return answer if isinstance(answer, str) else answer["results"][0]


def _value(subject: Subject, topic: str, key: str) -> Any:
    found = _described(subject, TOPIC, topic, [key])["configs"]
    return [found[0]["value"], found[0]["config_source"]] if found else "absent"


def _changed(
    subject: Subject, name: str, *changes: tuple[Any, ...], kind: int = TOPIC, check: bool = False
) -> Any:
    rows = [make(configs.IncrementalAlterableConfig, *change) for change in changes]
    wanted = make(configs.IncrementalAlterConfigsResource, kind, name, rows)
    answer = subject.tell(make(configs.IncrementalAlterConfigsRequest, [wanted], check), 1)
    return answer if isinstance(answer, str) else answer["responses"][0]


@probe
def describe_configs_of_a_topic(subject: Subject) -> Any:
    name = subject.topic(retention_ms="5000")
    told = _described(subject, TOPIC, name)
    return {
        each["name"]: [each["value"], each["config_source"], each["config_type"], each["read_only"]]
        for each in told["configs"]
    }


@probe
def describe_configs_with_synonyms(subject: Subject) -> Any:
    name = subject.topic(retention_ms="5000")
    keys = ["retention.ms", "cleanup.policy"]
    told = _described(subject, TOPIC, name, keys, include_synonyms=True, include_documentation=True)
    for each in told["configs"]:
        each["documentation"] = bool(each["documentation"])
    return told["configs"]


@probe
def describe_configs_of_what_is_not_there(subject: Subject) -> Any:
    name = subject.topic()
    return {
        "unknown topic": _described(subject, TOPIC, subject.name()),
        "invalid topic": _described(subject, TOPIC, "a/b"),
        "empty topic": _described(subject, TOPIC, ""),
        "unknown key": _described(subject, TOPIC, name, ["no.such.thing"]),
        "no keys": len(_described(subject, TOPIC, name, [])["configs"]) > 0,
        "unknown kind": _described(subject, 99, "x"),
        "broker that is not there": _described(subject, BROKER, "4711"),
        "broker that is no number": _described(subject, BROKER, "x"),
        "unknown group": _described(subject, GROUP, subject.name(), ["consumer.session.timeout.ms"]),
    }


@probe
def describe_configs_of_the_broker(subject: Subject) -> Any:
    from millpond.protocol.messages import metadata

    node = str(subject.ask(make(metadata.MetadataRequest, []), 9).brokers[0].node_id)
    keys = ["num.partitions", "auto.create.topics.enable", "message.max.bytes", "log.retention.ms"]
    keys += ["log.retention.hours", "group.max.session.timeout.ms", "transaction.max.timeout.ms"]
    keys += ["default.replication.factor", "min.insync.replicas", "offset.metadata.max.bytes"]
    told = _described(subject, BROKER, node, keys)
    cluster_wide = _described(subject, BROKER, "")
    return {
        "error_code": told["error_code"],
        "values": {each["name"]: [each["value"], each["read_only"]] for each in told["configs"]},
        "cluster-wide": sorted(each["name"] for each in cluster_wide["configs"]),
    }


@probe
def alter_configs_step_by_step(subject: Subject) -> Any:
    name = subject.topic()
    return {
        "set": _changed(subject, name, ("retention.ms", SET, "1000")),
        "is": _value(subject, name, "retention.ms"),
        "append to a list": _changed(subject, name, ("cleanup.policy", APPEND, "compact")),
        "is then": _value(subject, name, "cleanup.policy"),
        "append what is there": _changed(subject, name, ("cleanup.policy", APPEND, "compact")),
        "subtract": _changed(subject, name, ("cleanup.policy", SUBTRACT, "delete")),
        "is at last": _value(subject, name, "cleanup.policy"),
        "subtract what is not there": _changed(subject, name, ("cleanup.policy", SUBTRACT, "delete")),
        "delete": _changed(subject, name, ("retention.ms", DELETE, None)),
        "is the default": _value(subject, name, "retention.ms"),
        "delete what is not set": _changed(subject, name, ("segment.ms", DELETE, None)),
    }


@probe
def alter_configs_that_are_refused(subject: Subject) -> Any:
    name = subject.topic()
    return {
        "unknown key": _changed(subject, name, ("no.such.thing", SET, "1")),
        "delete unknown key": _changed(subject, name, ("no.such.thing", DELETE, None)),
        "not a number": _changed(subject, name, ("retention.ms", SET, "soon")),
        "null": _changed(subject, name, ("retention.ms", SET, None)),
        "append to what is no list": _changed(subject, name, ("retention.ms", APPEND, "1")),
        "unknown operation": _changed(subject, name, ("retention.ms", 9, "1")),
        "twice": _changed(subject, name, ("retention.ms", SET, "1"), ("retention.ms", SET, "2")),
        "one good, one bad": _changed(subject, name, ("retention.ms", SET, "7"), ("no.such", SET, "2")),
        "is untouched": _value(subject, name, "retention.ms"),
        "unknown topic": _changed(subject, subject.name(), ("retention.ms", SET, "1")),
        "invalid topic": _changed(subject, "a/b", ("retention.ms", SET, "1")),
        "empty topic": _changed(subject, "", ("retention.ms", SET, "1")),
        "unknown kind": _changed(subject, "x", ("retention.ms", SET, "1"), kind=99),
        "nothing": _changed(subject, name),
    }


@probe
def alter_configs_only_to_check(subject: Subject) -> Any:
    name = subject.topic()
    return {
        "good": _changed(subject, name, ("retention.ms", SET, "1000"), check=True),
        "bad": _changed(subject, name, ("retention.ms", SET, "soon"), check=True),
        "is untouched": _value(subject, name, "retention.ms"),
    }


@probe
def alter_configs_of_the_same_twice(subject: Subject) -> Any:
    name = subject.topic()
    change = [make(configs.IncrementalAlterableConfig, "retention.ms", SET, "1000")]
    wanted = [make(configs.IncrementalAlterConfigsResource, TOPIC, name, change) for _ in range(2)]
    return subject.tell(make(configs.IncrementalAlterConfigsRequest, wanted), 1)


@probe
def alter_configs_the_old_way(subject: Subject) -> Any:
    """AlterConfigs replaces everything that was set."""
    name = subject.topic(retention_ms="5000")

    def replaced(topic: str, *pairs: tuple[str, str | None]) -> Any:
        rows = [make(configs.AlterableConfig, *pair) for pair in pairs]
        wanted = make(configs.AlterConfigsResource, TOPIC, topic, rows)
        return subject.tell(make(configs.AlterConfigsRequest, [wanted]), 2)["responses"][0]

    return {
        "other key": replaced(name, ("segment.ms", "60000")),
        "the one before": _value(subject, name, "retention.ms"),
        "the new one": _value(subject, name, "segment.ms"),
        "unknown key": replaced(name, ("no.such.thing", "1")),
        "null": replaced(name, ("segment.ms", None)),
        "unknown topic": replaced(subject.name(), ("segment.ms", "60000")),
    }


@probe
def alter_configs_that_change_produce(subject: Subject) -> Any:
    """A change holds for what comes after it."""
    from tests.peers.differential.subject import batch_of

    name = subject.topic()
    changed = _changed(subject, name, ("max.message.bytes", SET, "200"))
    refused = subject.until(
        lambda: subject.produce(name, batch_of("a" * 500))["error_code"], lambda code: code != "NONE"
    )
    return {"changed": changed, "then": refused}
