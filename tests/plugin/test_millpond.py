"""The broker that tests get: its interfaces, its time, its faults, its lives."""

import socket
from pathlib import Path
from urllib.request import urlopen

import pytest
from confluent_kafka import Producer as KafkaProducer

from millpond import AsyncConsumer, AsyncProducer
from millpond.catalog.sqlite import SqliteDatabase
from millpond.groups import JoinRequest, Protocol, SyncRequest
from millpond.model.errors import InvalidSettings, MillpondError, Stopping, UnknownTopic
from millpond.testing import Millpond
from millpond.testing.background import run_in_background

pytestmark = pytest.mark.usefixtures("no_read_timeout")


@pytest.fixture
def pond():
    with Millpond() as millpond:
        yield millpond


def values(pond, topic="orders"):
    return [message.value for message in pond.consumer(topic).poll().messages]


def send_by_kafka(pond, value, topic="orders"):
    refused = []
    producer = KafkaProducer({"bootstrap.servers": pond.bootstrap_servers})
    producer.produce(topic, value, on_delivery=lambda error, _: refused.append(error))
    assert producer.flush(10) == 0
    assert refused == [None]


def bounds(pond, topic="orders"):
    partition = pond.admin().describe_topic(topic).partitions[0]
    return partition.oldest, partition.next


# -- interfaces --------------------------------------------------------------------------------------------------------


def test_its_clients_write_and_read(pond):
    assert pond.producer("orders").send(b"one", key=b"k").number == 1
    assert values(pond) == [b"one"]
    assert [topic.name for topic in pond.admin().list_topics()] == ["orders"]


def test_kafka_clients_find_it(pond):
    send_by_kafka(pond, b"by kafka")
    assert values(pond) == [b"by kafka"]


def test_it_answers_over_http(pond):
    with urlopen(f"{pond.http}/readyz", timeout=10) as answer:
        assert answer.status == 200


async def test_an_asynchronous_test_may_use_its_own_loop(pond):
    async with AsyncProducer("orders", address=pond.grpc) as producer:
        await producer.send(b"one")
    pond.advance("1s")
    async with AsyncConsumer("orders", address=pond.grpc) as consumer:
        assert [message.value for message in (await consumer.poll()).messages] == [b"one"]
    assert values(pond) == [b"one"]


def test_two_of_them_know_nothing_of_each_other(pond):
    pond.producer("orders").send(b"one")
    with Millpond() as other:
        assert other.admin().list_topics() == []


# -- settings -----------------------------------------------------------------------------------------------------


def test_settings_are_given_as_text_or_as_values():
    with Millpond({"default_partitions": 3, "auto_create_topics": False, "retention": "10s"}) as pond:
        settings = pond.broker.settings
        assert (settings.default_partitions, settings.retention) == (3, 10_000)
        with pytest.raises(UnknownTopic):
            pond.producer("orders").send(b"one")


def test_a_wrong_setting_is_named_and_leaves_nothing_behind():
    pond = Millpond({"retntion": "10s"})
    with pytest.raises(InvalidSettings, match="retntion"):
        pond.__enter__()
    assert pond._directory is None


def test_the_environment_has_no_say(monkeypatch):
    monkeypatch.setenv("MILLPOND_DEFAULT_PARTITIONS", "7")
    with Millpond() as pond:
        assert pond.broker.settings.default_partitions == 1


def test_an_interface_that_is_turned_off_has_no_address():
    with Millpond({"kafka_listen": ""}) as pond:
        with pytest.raises(RuntimeError, match="kafka"):
            _ = pond.bootstrap_servers
        pond.restart()
        assert set(pond.broker.listeners) == {"grpc", "http"}


# -- time ---------------------------------------------------------------------------------------------------------


def test_messages_expire_when_their_time_has_come_and_not_before():
    with Millpond({"retention": "1h"}) as pond:
        producer = pond.producer("orders")
        producer.send(b"old")
        pond.advance("40m")
        producer.send(b"young", timestamp_ms=pond.now_ms)
        assert bounds(pond) == (1, 3)
        pond.advance(seconds=40 * 60)
        assert values(pond) == [b"young"]
        pond.advance("40m")
        assert bounds(pond) == (3, 3)
        assert producer.send(b"next").number == 3


def test_what_is_due_after_milliseconds_has_expired_as_well():
    """Between two looks at a partition the broker by itself lets a second go by."""
    with Millpond({"retention": "100ms"}) as pond:
        producer = pond.producer("orders")
        for number in (1, 2, 3):
            producer.send(b"short-lived")
            pond.advance("200ms")
            assert bounds(pond) == (number + 1, number + 1)


def test_a_topic_that_stamps_messages_itself_stamps_them_with_the_brokers_time():
    with Millpond({"retention": "1h"}) as pond:
        pond.admin().create_topic("orders", configs={"message.timestamp.type": "LogAppendTime"})
        send_by_kafka(pond, b"old")
        pond.advance("40m")
        send_by_kafka(pond, b"young")
        pond.advance("40m")
        assert values(pond) == [b"young"]


def test_time_does_not_go_back(pond):
    with pytest.raises(ValueError, match="forward"):
        pond.advance(seconds=-1)


def join_group(pond):
    """Become the only member, which hears nothing of the group afterwards."""
    running = pond.broker.groups
    join = JoinRequest(
        "", "client", "host", 10_000, 10_000, "consumer", [Protocol("range", b"")], None, False
    )
    joined = run_in_background(running.join("readers", join))
    sync = SyncRequest(joined.member_id, joined.generation, assignments={joined.member_id: b""})
    run_in_background(running.sync("readers", sync))


def groups(pond):
    """A group without members and offsets is forgotten."""
    return [group.name for group in pond.admin().list_groups()]


def test_members_that_are_not_heard_of_are_gone(pond):
    join_group(pond)
    pond.advance("3s")
    assert groups(pond) == ["readers"]
    pond.advance("9s")
    assert groups(pond) == []


def test_members_from_before_a_restart_are_gone_as_well(pond):
    join_group(pond)
    pond.restart()
    assert groups(pond) == ["readers"]
    pond.advance("1h")
    assert groups(pond) == []


def test_a_late_transaction_is_aborted(pond):
    settings = {
        "bootstrap.servers": pond.bootstrap_servers,
        "transactional.id": "x",
        "transaction.timeout.ms": 60_000,
    }
    late = KafkaProducer(settings)
    late.init_transactions(10)
    late.begin_transaction()
    late.produce("orders", b"never committed")
    assert late.flush(10) == 0
    pond.producer("orders").send(b"behind it")
    assert values(pond) == []
    pond.advance("61s")
    assert values(pond) == [b"behind it"]


# -- faults -------------------------------------------------------------------------------------------------------


def test_an_unavailable_store_refuses_and_comes_back(pond):
    pond.producer("orders").send(b"before")
    producer = pond.producer("orders", timeout=2.0)
    with pond.unavailable(), pytest.raises(MillpondError):
        producer.send(b"refused")
    assert pond.producer("orders").send(b"after").number == 2
    assert values(pond) == [b"before", b"after"]


def test_a_lost_answer_does_not_store_a_message_twice(pond):
    pond.faults.fail_after("append")
    assert pond.producer("orders").send(b"one").number == 1
    assert values(pond) == [b"one"]


def test_a_held_write_is_not_acknowledged_before_it_goes_on(pond):
    producer = pond.producer("orders")
    held = pond.faults.hold("append")
    sent = producer.submit(b"one")
    held.wait_reached()
    assert not sent.done()
    held.release()
    assert sent.result(10).number == 1


def test_a_hold_that_nobody_releases_ends_with_the_test():
    with Millpond() as pond:
        held = pond.faults.hold("append")
        sent = pond.producer("orders").submit(b"one")
        held.wait_reached()
    assert sent.result(0).number == 1


# -- lives --------------------------------------------------------------------------------------------------------


def test_a_restart_keeps_messages_and_addresses(pond):
    producer, addresses = pond.producer("orders"), (pond.bootstrap_servers, pond.grpc, pond.http)
    producer.send(b"one")
    pond.restart()
    assert (pond.bootstrap_servers, pond.grpc, pond.http) == addresses
    assert producer.send(b"two").number == 2
    send_by_kafka(pond, b"three")
    assert values(pond) == [b"one", b"two", b"three"]


def test_time_goes_on_over_a_restart():
    with Millpond({"retention": "1h"}) as pond:
        pond.producer("orders").send(b"old")
        pond.advance("40m")
        pond.restart()
        pond.advance("40m")
        assert values(pond) == []


def test_a_stopped_broker_can_be_started_once(pond):
    pond.stop()
    with pytest.raises(RuntimeError, match="down"):
        pond.stop()
    pond.start()
    with pytest.raises(RuntimeError, match="running"):
        pond.start()


@pytest.mark.parametrize("applied", [False, True])
def test_a_crash_loses_nothing_that_was_acknowledged_and_stores_nothing_twice(pond, applied):
    producer = pond.producer("orders")
    producer.send(b"acknowledged")
    held = pond.faults.hold("append", applied=applied)
    sent = producer.submit(b"under way")
    held.wait_reached()
    pond.kill()
    assert not sent.done()
    pond.start()
    assert sent.result(10).number == 2
    assert values(pond) == [b"acknowledged", b"under way"]


@pytest.mark.parametrize(("end", "leaves"), [(Millpond.stop, True), (Millpond.kill, False)])
def test_a_broker_that_stops_takes_leave_and_one_that_crashes_does_not(pond, end, leaves):
    session = pond.broker.session
    end(pond)
    database = SqliteDatabase(Path(pond._directory.name) / "catalog.db")
    with database.read() as tx:
        ((dead_since,),) = tx.rows("SELECT dead_since FROM writers WHERE session = ?", (session,))
    database.close()
    assert (dead_since is not None) == leaves


def test_at_the_end_clients_are_closed_ports_free_and_files_gone():
    with Millpond() as pond:
        producer, place, address = pond.producer("orders"), Path(pond._directory.name), pond.grpc
        producer.send(b"one")
        assert (place / "catalog.db").exists()
    with pytest.raises(Stopping):
        producer.send(b"two")
    assert not place.exists()
    host, port = address.split(":")
    with socket.create_server((host, int(port))):
        pass


def test_clients_take_leave_even_of_a_broker_that_was_killed():
    with Millpond() as pond:
        producer = pond.producer("orders")
        producer.send(b"one")
        pond.kill()
        late = producer.submit(b"two")
    assert late.result(0).number == 2


def test_a_former_name_of_a_setting_is_accepted_with_a_warning():
    warned = pytest.warns(DeprecationWarning, match="the setting store is now called storage")
    with warned, Millpond({"store": "memory://", "catalog": "memory://"}) as pond:
        pond.producer("t").send(b"one")
