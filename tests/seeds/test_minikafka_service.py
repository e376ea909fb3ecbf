"""The seeds' gRPC service, driven from outside: a process serves, and a client that was made from the schema alone.

S1 to S7 and S9 as a client in another language sees them, and every line of the behaviour to keep.
"""

import os
import subprocess
import sys
import textwrap

import grpc
import pytest
from tests.seeds.minikafka import MiniKafka, generate, refusal
from tests.seeds.processes import PATIENCE_SECONDS, Server, environment, eventually

FOREIGN_CLIENT = """
    import sys, grpc, minikafka_pb2 as pb, minikafka_pb2_grpc as service

    assert not any(name.startswith("millpond") for name in sys.modules)
    stub = service.MiniKafkaStub(grpc.insecure_channel(sys.argv[1]))
    for text in (b"one", b"two"):
        made = stub.Produce(pb.ProduceRequest(topic=pb.Topic(topic="foreign"), payload=pb.Payload(payload=text)))
        print("number", made.msg_number)
    polled = stub.Poll(pb.PollRequest(topic="foreign", read_from=pb.MsgNumber(msg_number=1)))
    print([each.payload for each in polled.payloads], polled.new_read_from.msg_number)
"""


@pytest.mark.parametrize(
    "payload",
    [b"", b"x", b"\0", b"a\nb\r\n\0c", bytes(range(256)), os.urandom(1_000_000)],
    ids=["empty", "one byte", "nul", "newlines and nuls", "every byte", "1 MB"],
)
def test_s1_a_payload_comes_back_as_it_went(mini, topic, payload):
    assert mini.produce(topic, payload) == 1
    assert mini.poll(topic, 1) == ([payload], 2)


def test_s2_producing_to_a_new_topic_makes_it(mini, topic):
    assert refusal(lambda: mini.poll(topic, 1)).code() is grpc.StatusCode.NOT_FOUND
    mini.produce(topic, b"first")
    assert mini.poll(topic, 1).payloads == [b"first"]


def test_s2_making_topics_by_producing_can_be_turned_off(tmp_path, kinds):
    with Server(tmp_path, auto_create_topics="false") as server, MiniKafka(server.grpc, kinds) as mini:
        refused = refusal(lambda: mini.produce("new", b"x"))
        assert refused.code() is grpc.StatusCode.NOT_FOUND
        assert "topic" in refused.details()


def test_s3_messages_are_kept_in_the_order_received(mini, topic):
    sent = [b"%d" % number for number in range(200)]
    assert [mini.produce(topic, payload) for payload in sent] == list(range(1, 201))
    assert mini.poll_all(topic) == sent


def test_s4_the_position_is_the_clients_own(server, kinds, topic):
    with MiniKafka(server.grpc, kinds) as one, MiniKafka(server.grpc, kinds) as other:
        for payload in (b"1", b"2", b"3"):
            one.produce(topic, payload)
        assert one.poll(topic, 1) == ([b"1", b"2", b"3"], 4)
        assert other.poll(topic, 2) == ([b"2", b"3"], 4)
        assert one.poll(topic, 4) == ([], 4)


def test_s5_polling_removes_nothing(mini, topic):
    mini.produce(topic, b"stays")
    assert {tuple(mini.poll(topic, 1).payloads) for _ in range(5)} == {(b"stays",)}


def test_s6_messages_expire_and_numbers_go_on(tmp_path, kinds):
    with Server(tmp_path, retention="300ms") as server, MiniKafka(server.grpc, kinds) as mini:
        assert [mini.produce("topic", payload) for payload in (b"1", b"2")] == [1, 2]
        eventually(lambda: mini.poll("topic", 1) == ([], 1), "both have expired")
        assert mini.produce("topic", b"3") == 3
        server.kill()
        server.start()
        assert mini.produce("topic", b"4") == 4


def test_s7_a_client_made_by_protoc_works_unchanged(server, tmp_path):
    generate(tmp_path, ("python_out", "."), ("grpc_python_out", "."))
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FOREIGN_CLIENT), server.grpc],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["number 1", "number 2", "[b'one', b'two'] 3"]


@pytest.mark.parametrize(
    "places", [{"storage": "memory://", "catalog": "memory://"}, {}], ids=["memory", "files"]
)
def test_s9_files_outlive_a_kill_and_memory_does_not(tmp_path, kinds, places):
    with Server(tmp_path, **places) as server, MiniKafka(server.grpc, kinds) as mini:
        mini.produce("topic", b"kept?")
        server.kill()
        server.start()
        if places:
            assert refusal(lambda: mini.poll("topic", 1)).code() is grpc.StatusCode.NOT_FOUND
        else:
            assert mini.poll("topic", 1) == ([b"kept?"], 2)


# -- behaviour to keep ------------------------------------------------------------------------------------------------


def test_kept_the_first_number_is_1_and_the_next_2(mini, topic):
    assert [mini.produce(topic, b"x"), mini.produce(topic, b"x")] == [1, 2]


def test_kept_a_new_topic_starts_again_at_1(mini, topic):
    mini.produce(topic, b"x")
    mini.produce(topic, b"x")
    assert mini.produce(f"{topic}-new", b"x") == 1


def test_kept_polling_an_unknown_topic_is_an_error_that_says_topic(mini):
    assert "topic" in refusal(lambda: mini.poll("nobody-made-this", 1)).details()


def test_kept_an_emptied_topic_gives_nothing_and_leaves_the_position(tmp_path, kinds):
    with Server(tmp_path, retention="100ms") as server, MiniKafka(server.grpc, kinds) as mini:
        for payload in (b"1", b"2", b"3"):
            mini.produce("topic", payload)
        eventually(lambda: not mini.poll("topic", 1).payloads, "all have expired")
        assert [mini.poll("topic", position) for position in (1, 2, 4)] == [([], 1), ([], 2), ([], 4)]


@pytest.mark.parametrize("beyond", [3, 4, 1_000_000, 2**32 - 1])
def test_kept_polling_past_the_end_gives_nothing_and_leaves_the_position(mini, topic, beyond):
    mini.produce(topic, b"1")
    mini.produce(topic, b"2")
    assert mini.poll(topic, beyond) == ([], beyond)


def test_kept_polling_below_the_oldest_gives_everything_retained(tmp_path, kinds):
    """Message 1 expires on a topic that is filled further, until a poll from 1 on begins later."""
    with Server(tmp_path, retention="400ms") as server, MiniKafka(server.grpc, kinds) as mini:
        made = {}

        def the_first_is_gone():
            payload = b"%d" % (len(made) + 1)
            made[mini.produce("topic", payload)] = payload
            polled = mini.poll("topic", 1)
            if not polled.payloads:  # a slow machine: all have expired
                return False
            retained = list(made.values())[len(made) - len(polled.payloads) :]
            assert polled.payloads == retained
            assert polled.read_from == len(made) + 1
            return len(polled.payloads) < len(made)

        eventually(the_first_is_gone, "the oldest expire one by one")


def test_kept_three_messages_then_none_then_one(mini, topic):
    for payload in (b"1", b"2", b"3"):
        mini.produce(topic, payload)
    assert mini.poll(topic, 1) == ([b"1", b"2", b"3"], 4)
    assert mini.poll(topic, 4) == ([], 4)
    mini.produce(topic, b"4")
    assert mini.poll(topic, 4) == ([b"4"], 5)


def test_kept_position_0_reads_from_the_first(mini, topic):
    """Numbers begin at 1, and nothing lies below it."""
    mini.produce(topic, b"1")
    assert mini.poll(topic, 0) == ([b"1"], 2)


def test_kept_numbers_go_on_after_everything_expired_and_a_restart(tmp_path, kinds):
    with Server(tmp_path, retention="100ms") as server, MiniKafka(server.grpc, kinds) as mini:
        for expected in (1, 2, 3):
            assert mini.produce("topic", b"x") == expected
            eventually(lambda: not mini.poll("topic", 1).payloads, "it has expired")
            server.stop()
            server.start()
