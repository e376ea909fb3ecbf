"""Apache Kafka's command-line tools, which are the Java client: of the last 3.x and of the newest version."""

import json
import re

import pytest
from tests.peers.support import eventually, json_lines, said, shows
from tests.peers.tools import CLIENT, Tools, tools, version

from peers import kafka

__all__ = ["tools", "version"]

RECORDS = 500


@shows(CLIENT, "creates, describes, grows and deletes topics")
def test_topics(tools, prefix):
    tools.create(prefix, 2)
    assert prefix in tools.say("topics", "--list").split()
    assert "PartitionCount: 2" in tools.say("topics", "--describe", "--topic", prefix)
    tools.say("topics", "--alter", "--topic", prefix, "--partitions", "3")
    assert "PartitionCount: 3" in tools.say("topics", "--describe", "--topic", prefix)
    tools.say("topics", "--delete", "--topic", prefix)
    eventually(lambda: prefix not in tools.say("topics", "--list").split())


@shows(CLIENT, "gets an error that says what is wrong with a topic")
def test_topics_that_are_refused(tools, prefix):
    tools.create(prefix, 2)
    again = tools.run("topics", "--create", "--topic", prefix)
    assert "already exists" in again.stdout + again.stderr
    fewer = tools.run("topics", "--alter", "--topic", prefix, "--partitions", "1")
    assert fewer.returncode != 0
    assert "InvalidPartitionsException" in fewer.stdout + fewer.stderr


@shows(CLIENT, "describes and changes settings of topics")
def test_configs(tools, prefix):
    tools.create(prefix)
    topic = ("--entity-type", "topics", "--entity-name", prefix)
    tools.say("configs", *topic, "--alter", "--add-config", "retention.ms=123456,max.message.bytes=2000")
    described = tools.say("configs", *topic, "--describe")
    assert "retention.ms=123456" in described
    assert "max.message.bytes=2000" in described
    tools.say("configs", *topic, "--alter", "--delete-config", "retention.ms")
    assert "retention.ms" not in tools.say("configs", *topic, "--describe")
    assert "retention.ms=" in tools.say("configs", *topic, "--describe", "--all")


@shows(CLIENT, "describes settings of the broker")
def test_broker_configs(tools):
    described = tools.say("configs", "--entity-type", "brokers", "--describe", "--all")
    assert "message.max.bytes=" in described


@shows(CLIENT, "produces and consumes from the console, with keys")
def test_console(tools, prefix):
    tools.create(prefix)
    parse = ("--property", "parse.key=true", "--property", "key.separator=:")
    tools.produce(prefix, "a:1", "b:2", options=parse)
    assert tools.consume(prefix, 2, "--property", "print.key=true")[-2:] == ["a\t1", "b\t2"]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
@shows(CLIENT, "produces with every codec")
def test_codecs(tools, prefix, codec):
    tools.create(prefix)
    lines = [f"{codec} {'x' * 50} {number}" for number in range(20)]
    tools.produce(prefix, *lines, options=("--compression-codec", codec))
    assert tools.consume(prefix, 20) == lines


@shows(CLIENT, "lists, describes, resets and deletes consumer groups")
def test_consumer_groups(tools, prefix):
    group = ("--group", f"{prefix}-group")
    tools.create(prefix)
    tools.produce(prefix, *"abcd")
    tools.consume(prefix, 4, *group)
    assert f"{prefix}-group" in tools.say("consumer-groups", "--list").split()
    assert _row(tools, prefix, group) == ["0", "4", "4", "0"]
    _reset(tools, prefix, group, "--to-offset", "1")
    assert _row(tools, prefix, group) == ["0", "1", "4", "3"]
    _reset(tools, prefix, group, "--to-earliest")
    _reset(tools, prefix, group, "--to-datetime", "2020-01-01T00:00:00.000")
    _reset(tools, prefix, group, "--shift-by", "2")
    assert _row(tools, prefix, group) == ["0", "2", "4", "2"]
    tools.say("consumer-groups", *group, "--delete-offsets", "--topic", prefix)
    assert f" {prefix} " not in _described(tools, group)
    tools.say("consumer-groups", *group, "--delete")
    eventually(lambda: f"{prefix}-group" not in tools.say("consumer-groups", "--list").split())


def _reset(tools: Tools, topic: str, group: tuple[str, str], *how: str) -> None:
    tools.say("consumer-groups", *group, "--reset-offsets", "--topic", topic, *how, "--execute")


def _described(tools: Tools, group: tuple[str, str]) -> str:
    done = tools.run("consumer-groups", *group, "--describe")
    return done.stdout + done.stderr


def _row(tools: Tools, topic: str, group: tuple[str, str]) -> list[str]:
    """Partition, committed offset, end, lag."""
    rows = [line.split() for line in _described(tools, group).splitlines() if topic in line]
    found = next(row for row in rows if topic in row[1:2])
    at = found.index(topic)
    return found[at + 1 : at + 5]


@shows(CLIENT, "describes members and state of a group")
def test_group_state(tools, prefix):
    group = ("--group", f"{prefix}-group")
    tools.create(prefix)
    tools.produce(prefix, "a")
    tools.consume(prefix, 1, *group)
    state = tools.say("consumer-groups", *group, "--describe", "--state")
    assert "Empty" in state
    assert "no active members" in _described(tools, group)


@shows(CLIENT, "verifiable producer and consumer agree")
def test_verifiable(tools, prefix):
    tools.create(prefix, 3)
    sent = json_lines(tools.say("verifiable-producer", "--topic", prefix, "--max-messages", str(RECORDS)))
    assert sum(each["name"] == "producer_send_success" for each in sent) == RECORDS
    options = ("--topic", prefix, "--group-id", f"{prefix}-group", "--max-messages", str(RECORDS))
    read = json_lines(tools.say("verifiable-consumer", *options, "--reset-policy", "earliest"))
    consumed = sum(each["count"] for each in read if each["name"] == "records_consumed")
    assert consumed == RECORDS
    assert all(each.get("success", True) for each in read if each["name"] == "offsets_committed")


def _perf_produce(tools: Tools, topic: str, *options: str, properties: tuple[str, ...] = ()) -> str:
    arguments = [
        "--topic",
        topic,
        "--num-records",
        str(RECORDS),
        "--record-size",
        "100",
        "--throughput",
        "-1",
    ]
    given = [f"bootstrap.servers={tools.bootstrap}", *properties]
    command = [*arguments, *options, "--producer-props", *given]
    return said(kafka.run_tool("producer-perf-test", *command, version=tools.version))


@shows(CLIENT, "runs the performance tests of producer and consumer")
def test_performance_tools(tools, prefix):
    tools.create(prefix)
    assert f"{RECORDS} records sent" in _perf_produce(tools, prefix, properties=("acks=all",))
    out = tools.say("consumer-perf-test", "--topic", prefix, "--messages", str(RECORDS), "--timeout", "30000")
    figures = [line.split(", ") for line in out.splitlines()[1:] if re.match(r"\d{4}-", line)]
    assert float(figures[-1][4]) == RECORDS


@shows(CLIENT, "produces in transactions; a reader of committed messages sees them")
def test_transactions(tools, prefix):
    tools.create(prefix)
    options = ("--transactional-id", f"{prefix}-id", "--transaction-duration-ms", "50")
    assert f"{RECORDS} records sent" in _perf_produce(tools, prefix, *options)
    committed = ("--isolation-level", "read_committed")
    assert len(tools.consume(prefix, RECORDS, *committed)) == RECORDS
    (end,) = _offsets(tools, prefix, "latest").values()
    assert end > RECORDS  # markers take offsets too


def _offsets(tools: Tools, topic: str, time: str) -> dict[int, int]:
    out = tools.say("get-offsets", "--topic", topic, "--time", time)
    rows = [line.split(":") for line in out.split() if line.startswith(f"{topic}:")]
    return {int(partition): int(offset) for _, partition, offset in rows if offset}


@shows(CLIENT, "lists offsets: earliest, latest, max timestamp, by time")
def test_get_offsets(tools, prefix):
    tools.create(prefix, 2)
    tools.produce(prefix, *"abc")
    ends = _offsets(tools, prefix, "latest")
    assert sum(ends.values()) == 3
    assert _offsets(tools, prefix, "earliest") == {0: 0, 1: 0}
    filled = max(ends, key=ends.get)
    assert 0 <= _offsets(tools, prefix, "max-timestamp")[filled] < ends[filled]
    assert _offsets(tools, prefix, "1000000000000")[filled] == 0


@shows(CLIENT, "lists local and tiered offsets")
def test_get_tiered_offsets(tools, prefix):
    tools.create(prefix)
    tools.produce(prefix, *"abc")
    assert _offsets(tools, prefix, "earliest-local") == {0: 0}
    assert _offsets(tools, prefix, "latest-tiered") == {}


@shows(CLIENT, "deletes records")
def test_delete_records(tools, prefix, tmp_path):
    tools.create(prefix)
    tools.produce(prefix, *"abcd")
    wanted = {"partitions": [{"topic": prefix, "partition": 0, "offset": 3}], "version": 1}
    file = tmp_path / "delete.json"
    file.write_text(json.dumps(wanted))
    assert "low_watermark: 3" in tools.say("delete-records", "--offset-json-file", str(file))
    assert tools.consume(prefix, 1) == ["d"]
    assert _offsets(tools, prefix, "earliest") == {0: 3}


@shows(CLIENT, "describes log directories")
def test_log_dirs(tools, prefix):
    tools.create(prefix)
    tools.produce(prefix, "a")
    out = tools.say("log-dirs", "--describe", "--topic-list", prefix)
    (told,) = json_lines(out)
    partitions = [
        each for broker in told["brokers"] for log in broker["logDirs"] for each in log["partitions"]
    ]
    assert [each["partition"] for each in partitions] == [f"{prefix}-0"]
    assert partitions[0]["size"] > 0


@shows(CLIENT, "lists transactions")
def test_transactions_list(tools, prefix):
    tools.create(prefix)
    _perf_produce(tools, prefix, "--transactional-id", f"{prefix}-id", "--transaction-duration-ms", "50")
    out = tools.say("transactions", "list")
    row = next(line for line in out.splitlines() if line.startswith(f"{prefix}-id"))
    assert "CompleteCommit" in row
