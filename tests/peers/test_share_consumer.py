"""librdkafka's share consumers with Apache Kafka: the scenarios that `tests/clients/test_share_groups.py` runs with
Millpond, so that those ask for what Kafka does."""

import time
from contextlib import ExitStack

import pytest
from tests.clients.share_members import LOCK, Share
from tests.clients.share_scenarios import every_scenario
from tests.peers.conftest import LOCK_MS_MIN

UNENDING_LOCK_MS = 60_000


@pytest.mark.peers
@every_scenario
def test_share_consumers_of_librdkafka_on_apache_kafka(kafka_bootstrap, scenario):
    lock_ms = LOCK_MS_MIN if "lock" in scenario.__name__ else UNENDING_LOCK_MS
    with ExitStack() as stack:
        share = Share(kafka_bootstrap, stack, _pass_lock)
        share.configure({LOCK: str(lock_ms)})
        scenario(share)


def _pass_lock():
    time.sleep(2 * LOCK_MS_MIN / 1000)
