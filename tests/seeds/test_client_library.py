"""The seeds' "in your own code": a server, producers and consumers as types (S8), and client libraries (S13)."""

import json
import subprocess
import sys
import textwrap

import pytest
from tests.ports import free_port
from tests.seeds.minikafka import MiniKafka
from tests.seeds.processes import PATIENCE_SECONDS, Server, environment, eventually

from millpond import Admin, AsyncConsumer, AsyncProducer, Broker, Consumer, Producer, Settings
from millpond.errors import InvalidTopicName, TimedOut, UnknownTopic, Unreachable

OWN_SERVER = """
    import asyncio, sys
    from pathlib import Path
    from millpond import Broker, Settings

    async def main():
        settings = Settings(data_dir=Path(sys.argv[1]), retention=10_000, kafka_listen="", http_listen="",
                            grpc_listen=f"127.0.0.1:{sys.argv[2]}")
        async with Broker(settings, listen=True) as broker:
            print("serving", flush=True)
            await asyncio.to_thread(sys.stdin.read)

    asyncio.run(main())
"""


def test_s8_a_server_can_be_launched_from_ones_own_code(tmp_path, kinds):
    """Another process of ours is the application; it ends its server when its input ends."""
    port = free_port()
    command = [sys.executable, "-c", textwrap.dedent(OWN_SERVER), str(tmp_path / "store"), str(port)]
    for expected in (1, 2):
        application = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
        )
        assert application.stdout.readline() == "serving\n"
        with MiniKafka(f"127.0.0.1:{port}", kinds) as mini:
            assert mini.produce("some_topic", bytes(300)) == expected
        application.communicate(timeout=PATIENCE_SECONDS)
        assert application.returncode == 0


async def test_s8_server_producer_and_consumer_are_types_to_instantiate_and_drive(tmp_path):
    settings = Settings(data_dir=tmp_path, kafka_listen="", http_listen="", grpc_listen="127.0.0.1:0")
    async with Broker(settings, listen=True) as broker:
        address = broker.listeners["grpc"]
        async with (
            AsyncProducer("some_topic", address=address) as producer,
            AsyncConsumer("some_topic", address=address) as consumer,
        ):
            assert (await producer.send(bytes(300))).number == 1
            messages, read_from = await consumer.poll()
    assert ([message.value for message in messages], read_from) == ([bytes(300)], 2)


def test_s13_the_producer_sends_bytes_and_returns_the_number(server, topic):
    with Producer(topic, address=server.grpc, timeout=30) as producer:
        assert [producer.send(bytes(300)).number for _ in range(3)] == [1, 2, 3]


def test_s13_the_consumer_polls_from_its_position_and_says_where_to_go_on(server, topic):
    with (
        Producer(topic, address=server.grpc) as producer,
        Consumer(topic, read_from=1, address=server.grpc) as consumer,
    ):
        for value in (b"1", b"2", b"3"):
            producer.send(value)
        messages, read_from = consumer.poll()
        assert ([message.value for message in messages], read_from) == ([b"1", b"2", b"3"], 4)
        assert [message.number for message in messages] == [1, 2, 3]
        assert consumer.poll() == ([], 4)
        producer.send(b"4")
        messages, read_from = consumer.poll()
        assert ([message.value for message in messages], read_from) == ([b"4"], 5)


def test_s13_the_application_persists_its_position_for_the_next_launch(server, topic, tmp_path):
    kept = tmp_path / "read-from.json"
    kept.write_text("1")
    seen = []
    for number in range(4):
        with Producer(topic, address=server.grpc) as producer:
            producer.send(b"%d" % number)
        with Consumer(topic, read_from=json.loads(kept.read_text()), address=server.grpc) as consumer:
            messages, read_from = consumer.poll(wait=30)
            seen.append([message.value for message in messages])
            kept.write_text(json.dumps(read_from))
    assert seen == [[b"0"], [b"1"], [b"2"], [b"3"]]


def test_s13_a_server_that_is_not_there_is_an_error_within_the_timeout(topic):
    nowhere = f"127.0.0.1:{free_port()}"
    with pytest.raises((Unreachable, TimedOut)), Producer(topic, address=nowhere, timeout=0.5) as producer:
        producer.send(b"x")
    with pytest.raises((Unreachable, TimedOut)), Consumer(topic, address=nowhere, timeout=0.5) as consumer:
        consumer.poll()


def test_s13_errors_have_names_and_say_what_was_wrong(server):
    with (
        Consumer("nobody-made-this", address=server.grpc) as consumer,
        pytest.raises(UnknownTopic) as refused,
    ):
        consumer.poll()
    assert "nobody-made-this" in str(refused.value)
    with pytest.raises(InvalidTopicName), Producer("no/good", address=server.grpc) as producer:
        producer.send(b"x")


def test_s13_a_producer_outlives_a_restart_of_its_server(tmp_path):
    with Server(tmp_path) as server, Producer("topic", address=server.grpc, timeout=60) as producer:
        assert producer.send(b"before").number == 1
        server.kill()
        sent = producer.submit(b"meanwhile")
        server.start()
        assert sent.result(PATIENCE_SECONDS).number == 2
        with Consumer("topic", address=server.grpc) as consumer:
            assert [message.value for message in consumer.poll().messages] == [b"before", b"meanwhile"]


def test_s13_a_consumer_of_a_topic_that_comes_later_can_ask_again(server, topic):
    with Consumer(topic, address=server.grpc) as consumer:
        with pytest.raises(UnknownTopic):
            consumer.poll()
        with Producer(topic, address=server.grpc) as producer:
            producer.send(b"at last")
        assert [message.value for message in consumer.poll().messages] == [b"at last"]


def test_s6_a_consumer_whose_messages_expired_goes_on_at_the_next(tmp_path):
    with (
        Server(tmp_path, retention="200ms") as server,
        Producer("topic", address=server.grpc) as producer,
        Consumer("topic", address=server.grpc) as consumer,
        Admin(address=server.grpc) as admin,
    ):
        producer.send_many([b"1", b"2", b"3"])
        eventually(lambda: admin.describe_topic("topic").partitions[0].oldest == 4, "all have expired")
        assert consumer.poll() == ([], 4), "the oldest there is, or the next"
        admin.alter_topic("topic", configs={"retention.ms": "-1"})  # or the next may expire, too
        assert producer.send(b"4").number == 4
        assert [message.number for message in consumer.poll(wait=30).messages] == [4]
