"""Kafka Streams: a word count with exactly-once processing, in `peers/streams`."""

from tests.peers.support import available, shows

from peers import programs

COUNTS = {"the": 4, "mill": 2, "pond": 2, "and": 2}


@shows("Kafka Streams", "counts words exactly once (exactly_once_v2, with repartition and changelog topics)")
def test_word_count(bootstrap, prefix, tmp_path, counted):
    streams = available(programs.streams)
    assert streams.ask(bootstrap, prefix, str(tmp_path), "classic") == COUNTS
    counted(f"{sum(COUNTS.values())} words, {len(COUNTS)} counts")


@shows(
    "Kafka Streams",
    "group.protocol=streams is not implemented: the application ends with UnsupportedVersionException",
)
def test_streams_protocol(bootstrap, prefix, tmp_path):
    streams = available(programs.streams)
    assert streams.ask(bootstrap, prefix, str(tmp_path), "streams") == {
        "error": "UnsupportedVersionException"
    }
