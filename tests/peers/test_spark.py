"""Spark's own Kafka source and sink: its scenarios are in `peers/spark/run.py`, which runs them in one session."""

import pytest
from tests.peers.support import available, shows

from peers import programs

CLIENT = "Spark's Kafka connector"
SESSION_SECONDS_MAX = 600


@pytest.fixture(scope="module")
def seen(bootstrap, tmp_path_factory):
    """Scenario to what Spark saw."""
    spark = available(programs.spark)
    folder = tmp_path_factory.mktemp("spark")
    prefix = f"spark-{folder.parent.name[-6:]}".replace("_", "-")
    return spark.ask(bootstrap, prefix, str(folder), seconds=SESSION_SECONDS_MAX)


@shows(CLIENT, "writes a frame and reads it as a batch")
def test_sink_and_batch_source(seen):
    assert seen["sink_and_batch_source"] == {"values": ["1", "2", "3"]}


@shows(CLIENT, "reads a batch between offsets")
def test_batch_source_between_offsets(seen):
    assert seen["batch_source_between_offsets"] == {"offsets": [3, 4, 5]}


@shows(CLIENT, "reads from and up to timestamps")
def test_batch_source_by_timestamp(seen):
    assert seen["batch_source_by_timestamp"] == {"from": ["after"], "until": ["before"], "global": ["after"]}


@shows(CLIENT, "keeps headers")
def test_headers(seen):
    assert seen["headers"] == {"headers": [["h", "1"]]}


@shows(CLIENT, "streams what is available and goes on from its checkpoint")
def test_stream_of_what_is_available(seen):
    assert seen["stream_of_what_is_available"] == {"first": ["1", "2"], "then": ["1", "2", "3"]}


@shows(CLIENT, "streams from one topic into another")
def test_stream_into_the_sink(seen):
    assert seen["stream_into_the_sink"] == {"values": ["A", "B"]}


@shows(CLIENT, "notices lost records, and goes on if it may (failOnDataLoss)")
def test_data_loss(seen):
    assert seen["data_loss"] == {"tolerated": ["1", "3"], "refused": "failed"}


@shows(CLIENT, "reads several topics by a pattern, with more tasks than partitions")
def test_many_partitions(seen):
    assert seen["many_partitions"] == {"count": 400, "tasks": True}
