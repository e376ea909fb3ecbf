"""kcat, which is librdkafka from a shell."""

import json
import os
import subprocess
import time

import pytest
from peers.programs import Program
from tests.peers.support import available, eventually, json_lines, said, shows
from tests.unit.cli.secured_trial import secured_trial

from peers import programs

CLIENT = "kcat"


@pytest.fixture(scope="session")
def kcat() -> Program:
    return available(programs.kcat)


def produce(kcat: Program, bootstrap: str, topic: str, text: str, *options: str) -> None:
    said(kcat.run("-b", bootstrap, "-P", "-t", topic, *options, text=text))


def consume(kcat: Program, bootstrap: str, topic: str, *options: str) -> list[dict]:
    """Messages up to the end, as kcat's JSON."""
    return json_lines(said(kcat.run("-b", bootstrap, "-C", "-J", "-e", "-q", "-t", topic, *options)))


def payloads(messages: list[dict]) -> list[str]:
    return [each["payload"] for each in messages]


@shows(CLIENT, "lists brokers and topics (-L)")
def test_lists_metadata(kcat, bootstrap, prefix):
    produce(kcat, bootstrap, prefix, "a")
    metadata = json.loads(said(kcat.run("-b", bootstrap, "-L", "-J", "-t", prefix)))
    assert len(metadata["brokers"]) == 1
    assert [each["topic"] for each in metadata["topics"]] == [prefix]
    assert len(metadata["topics"][0]["partitions"]) == 1


@shows(CLIENT, "creates a topic by producing to it")
def test_creates_a_topic_by_producing(kcat, bootstrap, prefix):
    produce(kcat, bootstrap, prefix, "a\nb\nc")
    assert payloads(consume(kcat, bootstrap, prefix)) == ["a", "b", "c"]


@shows(CLIENT, "keeps keys, headers and null values")
def test_keeps_keys_and_headers(kcat, bootstrap, prefix):
    produce(kcat, bootstrap, prefix, "k:v", "-K:", "-H", "first=1", "-H", "second=2")
    produce(kcat, bootstrap, prefix, "gone:", "-K:", "-Z")
    kept, null = consume(kcat, bootstrap, prefix)
    assert (kept["key"], kept["payload"], kept["headers"]) == ("k", "v", ["first", "1", "second", "2"])
    assert (null["key"], null["payload"]) == ("gone", None)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@shows(CLIENT, "produces and consumes with every codec")
def test_produces_with_every_codec(kcat, bootstrap, prefix, codec):
    lines = [f"{codec} {number} {'x' * 100}" for number in range(50)]
    produce(kcat, bootstrap, prefix, "\n".join(lines), "-z", codec, "-X", "linger.ms=200")
    assert payloads(consume(kcat, bootstrap, prefix)) == lines


@shows(CLIENT, "produces idempotently")
def test_produces_idempotently(kcat, bootstrap, prefix):
    produce(kcat, bootstrap, prefix, "a\nb", "-X", "enable.idempotence=true", "-X", "acks=all")
    assert payloads(consume(kcat, bootstrap, prefix)) == ["a", "b"]


@shows(CLIENT, "consumes from an offset, from the end and a count")
def test_consumes_from_offsets(kcat, bootstrap, prefix):
    produce(kcat, bootstrap, prefix, "a\nb\nc\nd")
    assert payloads(consume(kcat, bootstrap, prefix, "-o", "1")) == ["b", "c", "d"]
    assert payloads(consume(kcat, bootstrap, prefix, "-o", "-2")) == ["c", "d"]
    assert payloads(consume(kcat, bootstrap, prefix, "-o", "beginning", "-c", "2")) == ["a", "b"]


@shows(CLIENT, "finds offsets by time (-Q, -o s@)")
def test_finds_offsets_by_time(kcat, bootstrap, prefix):
    produce(kcat, bootstrap, prefix, "before")
    time.sleep(0.05)
    between = time.time_ns() // 1_000_000
    time.sleep(0.05)
    produce(kcat, bootstrap, prefix, "after")
    answer = said(kcat.run("-b", bootstrap, "-Q", "-t", f"{prefix}:0:{between}"))
    assert answer.strip() == f"{prefix} [0] offset 1"
    assert payloads(consume(kcat, bootstrap, prefix, "-o", f"s@{between}")) == ["after"]


@shows(CLIENT, "reads as a group and goes on where it ended (-G)")
def test_reads_as_a_group(kcat, bootstrap, prefix):
    def read(count: int) -> list[str]:
        options = ["-X", "auto.offset.reset=earliest", "-X", "session.timeout.ms=6000"]
        command = ["-b", bootstrap, "-q", "-J", "-c", str(count), *options, "-G", f"{prefix}-group", prefix]
        return payloads(json_lines(said(kcat.run(*command))))

    produce(kcat, bootstrap, prefix, "a\nb")
    assert read(2) == ["a", "b"]
    produce(kcat, bootstrap, prefix, "c")
    assert read(1) == ["c"]


@shows(CLIENT, "waits for what comes next")
def test_waits_for_what_comes_next(kcat, bootstrap, prefix):
    produce(kcat, bootstrap, prefix, "old")
    command = [*kcat.command, "-b", bootstrap, "-C", "-q", "-u", "-t", prefix, "-o", "end", "-c", "1"]
    environment = {**os.environ, **kcat.environment}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as reader:
        try:
            eventually(lambda: (produce(kcat, bootstrap, prefix, "new"), reader.poll() is not None)[1])
            assert reader.stdout.read().strip() == "new"
        finally:
            reader.kill()


@shows(CLIENT, "connects by following what `millpond security init` prints: TLS, SASL")
def test_follows_what_security_init_prints(kcat, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{os.path.dirname(kcat.command[0])}:{os.environ['PATH']}")
    for name, value in kcat.environment.items():
        monkeypatch.setenv(name, value)
    with secured_trial(tmp_path) as trial:
        assert trial.paste(trial.block("librdkafka")) == "hello\n"
