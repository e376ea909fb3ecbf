"""librdkafka learns which records of a refused batch are to blame (KIP-467): only these are bad, the others may be sent
again. It is the only client here that tells them apart."""

import time
from contextlib import ExitStack

import pytest
from confluent_kafka import KafkaError, Producer
from tests.clients.adapters.named import client_named
from tests.clients.conftest import Setting
from tests.clients.patience import SECONDS_MAX

NOW_MS = int(time.time() * 1000)
HOUR_MS = 3_600_000
BAD = {0, 3, 4, 9}
"""Indexes of bad records in a batch of 10."""


@pytest.fixture
def stack():
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def produce_together(server):
    def produce(topic, messages):
        """All in one batch. Returns the error of each, by index."""
        linger = {"linger.ms": SECONDS_MAX * 1_000, "batch.num.messages": len(messages)}
        producer = Producer({"bootstrap.servers": server.address, **linger})
        errors = {}
        for index, message in enumerate(messages):
            producer.produce(
                topic, on_delivery=lambda error, _, index=index: errors.update({index: error}), **message
            )
        assert producer.flush(SECONDS_MAX) == 0
        return errors

    return produce


@pytest.mark.parametrize(
    ("configs", "good", "bad"),
    [
        ({"cleanup_policy": "compact"}, {"key": b"k"}, {}),
        (
            {"message_timestamp_before_max_ms": str(HOUR_MS)},
            {"timestamp": NOW_MS},
            {"timestamp": NOW_MS - 2 * HOUR_MS},
        ),
    ],
    ids=["keyless in a compacted topic", "too old"],
)
def test_only_the_bad_records_of_a_batch_are_bad(server, produce_together, configs, good, bad, stack):
    setting = Setting(server, client_named("confluent-kafka"), stack)
    topic = setting.topic(**configs)
    messages = [{"value": b"%d" % index, **(bad if index in BAD else good)} for index in range(10)]
    errors = produce_together(topic, messages)
    codes = {index: error.code() for index, error in errors.items()}
    in_bad_company = KafkaError._INVALID_DIFFERENT_RECORD
    assert codes == {
        index: KafkaError.INVALID_RECORD if index in BAD else in_bad_company for index in range(10)
    }
    again = [message for index, message in enumerate(messages) if codes[index] == in_bad_company]
    assert set(produce_together(topic, again).values()) == {None}
    assert [each.value for each in setting.read(topic, 6)] == [each["value"] for each in again]
