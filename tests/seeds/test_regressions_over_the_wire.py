"""The bugs of the seed projects as their clients met them: through MiniKafka's service, ours, and HTTP.

M2, M3, M7, M8, L2 and L6; the engine's side of them and the others are in `test_regressions.py`.
"""

from concurrent.futures import ThreadPoolExecutor

import grpc
import httpx
import pytest
from tests.seeds.minikafka import MiniKafka, refusal
from tests.seeds.processes import Server

from millpond import Admin, Consumer, Producer
from millpond.model.errors import InvalidTopicName, RecordTooLarge, UnknownPartition
from millpond.stubs import log_pb2

BAD_NAMES = ["a/b", "../x", "..", "/tmp/x", "a\\b", "a b", "\0", "x" * 250, ""]
FILE_NAMES = ["index", "journal", "catalog.db", "broker.lock", "objects"]
SMALL, LARGE = 1_000, 60_000


@pytest.fixture
def http(server):
    with httpx.Client(base_url=server.url, trust_env=False, timeout=60) as client:
        yield client


@pytest.fixture
def produce(server):
    """The unary call of our own service."""
    with grpc.insecure_channel(server.grpc) as channel:
        call = channel.unary_unary(
            "/millpond.v1.Log/Produce",
            log_pb2.ProduceRequest.SerializeToString,
            log_pb2.ProduceResponse.FromString,
        )
        yield lambda request: call(request, timeout=60)


def one(topic, value=b"x", **fields):
    return log_pb2.ProduceRequest(topic=topic, messages=[log_pb2.NewMessage(value=value)], **fields)


def names(server):
    with Admin(address=server.grpc) as admin:
        return {topic.name for topic in admin.list_topics()}


# -- M2, M3: names --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BAD_NAMES, ids=repr)
def test_m2_m3_a_bad_name_is_refused_by_every_interface_and_stores_nothing(server, mini, produce, http, name):
    before = names(server)
    for call in (lambda: mini.produce(name, b"x"), lambda: produce(one(name))):
        refused = refusal(call)
        assert refused.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "Topic name" in refused.details()
    with pytest.raises(InvalidTopicName), Producer(name, address=server.grpc) as producer:
        producer.send(b"x")
    answer = http.post("/topics", json={"name": name})
    assert (answer.status_code, answer.json()["code"]) == (400, "InvalidTopicName")
    assert names(server) == before


@pytest.mark.parametrize("name", FILE_NAMES)
def test_m2_a_name_that_a_file_bears_stores_what_it_is_given(mini, name):
    assert mini.produce(name, b"small") == 1
    assert mini.produce(name, bytes(LARGE)) == 2
    assert mini.poll(name, 1).payloads == [b"small", bytes(LARGE)]


def test_m3_nothing_is_written_outside_the_data_directory(tmp_path, kinds):
    folder = tmp_path / "inner"
    folder.mkdir()
    with Server(folder) as server, MiniKafka(server.grpc, kinds) as mini:
        for name in ("../x", "../../x", "a/../../../x"):
            refusal(lambda name=name: mini.produce(name, bytes(LARGE)))
        mini.produce("..x", bytes(LARGE))
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert all(folder / "data" in path.parents or path == folder / "broker.log" for path in written)
    assert not any("..x" in path.name for path in written)


# -- M7: far behind -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "size"), [(20, 900_000), (40_000, 300)], ids=["large", "many small"])
def test_m7_a_reader_far_behind_can_poll_with_the_limits_grpc_has_by_itself(
    server, kinds, topic, count, size
):
    """Much more than 4 MiB wait, and a client that takes 4 MiB gets all of it, poll after poll."""
    values = [b"%08d" % number + bytes(size - 8) for number in range(count)]
    with Producer(topic, address=server.grpc, timeout=60) as producer:
        producer.send_many(values)
    with MiniKafka(server.grpc, kinds) as mini:
        assert mini.poll_all(topic) == values


def test_m7_our_own_polls_are_bounded_as_they_are_told_and_always_progress(server, topic):
    with Producer(topic, address=server.grpc) as producer:
        producer.send_many([bytes([number]) * 500_000 for number in range(12)])
    polls, seen, position = 0, [], 1
    with grpc.insecure_channel(server.grpc) as channel:
        poll = channel.unary_unary(
            "/millpond.v1.Log/Poll", log_pb2.PollRequest.SerializeToString, log_pb2.PollResponse.FromString
        )
        while True:
            asked = log_pb2.PollRequest(topic=topic, bytes_max=1_100_000)
            asked.positions.add(read_from=position)
            answer = poll(asked, timeout=60)
            if not answer.messages:
                break
            assert 1 <= len(answer.messages) <= 2
            seen += [message.value[0] for message in answer.messages]
            position, polls = answer.standings[0].read_from, polls + 1
    assert seen == list(range(12))
    assert polls >= 6


# -- M8: what is missing ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "kind", "given"),
    [
        ("Produce", "ProduceRequest", {}),
        ("Produce", "ProduceRequest", {"topic": {"topic": "t"}}),
        ("Produce", "ProduceRequest", {"payload": {"payload": b"x"}}),
        ("Poll", "PollRequest", {}),
        ("Poll", "PollRequest", {"topic": "t"}),
    ],
    ids=str,
)
def test_m8_a_request_without_its_submessage_is_an_invalid_argument(mini, call, kind, given):
    refused = refusal(lambda: mini.call(call, mini.kinds[kind](**given)))
    assert refused.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "must be given" in refused.details()
    assert mini.produce("still-alive", b"x") >= 1


def test_m8_an_empty_request_of_ours_is_an_invalid_argument(produce, topic):
    for request in (log_pb2.ProduceRequest(), log_pb2.ProduceRequest(topic=topic)):
        assert refusal(lambda request=request: produce(request)).code() is grpc.StatusCode.INVALID_ARGUMENT


# -- L2: one that is too large ------------------------------------------------------------------------------------


def test_l2_only_the_sender_of_an_oversized_message_is_refused(tmp_path, kinds):
    """Many at once, so that they share flushes; one in ten is too large."""
    sizes = [LARGE if number % 10 == 5 else SMALL for number in range(60)]

    def outcome(mini, size):
        try:
            return mini.produce("topic", bytes(size))
        except grpc.RpcError as error:
            return error.code()

    with Server(tmp_path, max_message_bytes="50000") as server, MiniKafka(server.grpc, kinds) as mini:
        with ThreadPoolExecutor(20) as pool:
            outcomes = list(pool.map(lambda size: outcome(mini, size), sizes))
        for size, each in zip(sizes, outcomes, strict=True):
            assert (each is grpc.StatusCode.INVALID_ARGUMENT) == (size == LARGE)
        stored = [each for each in outcomes if isinstance(each, int)]
        assert sorted(stored) == list(range(1, 55))
        assert {len(payload) for payload in mini.poll_all("topic")} == {SMALL}


def test_l2_the_same_through_the_client_library_and_http(tmp_path):
    with (
        Server(tmp_path, max_message_bytes="50000") as server,
        Producer("topic", address=server.grpc) as producer,
        httpx.Client(base_url=server.url, trust_env=False, timeout=60) as http,
    ):
        sent = [producer.submit(bytes(size)) for size in (SMALL, LARGE, SMALL)]
        assert sent[0].result().number == 1
        with pytest.raises(RecordTooLarge):
            sent[1].result()
        assert sent[2].result().number == 2
        refused = http.post("/topics/topic/produce/0", content=b"key:" + bytes(LARGE))
        assert (refused.status_code, refused.json()["code"]) == (413, "RecordTooLarge")
        taken = http.post("/topics/topic/produce/0", content=b"key:" + bytes(SMALL))
        assert (taken.status_code, taken.json()["offset"]) == (200, 2)


# -- L6: partitions that are not there ------------------------------------------------------------------------------


@pytest.mark.parametrize("partition", [1, 7, 2**31, 2**32 - 1])
def test_l6_a_partition_out_of_range_is_not_found(server, produce, http, topic, partition):
    produce(one(topic))
    refused = refusal(lambda: produce(one(topic, partition=partition)))
    assert refused.code() is grpc.StatusCode.NOT_FOUND
    assert f"no partition {partition}" in refused.details()
    with Producer(topic, address=server.grpc) as producer, pytest.raises(UnknownPartition):
        producer.send(b"x", partition=partition)
    with (
        Consumer(topic, partition=partition, address=server.grpc) as consumer,
        pytest.raises(UnknownPartition),
    ):
        consumer.poll()
    for answer in (
        http.post(f"/topics/{topic}/produce/{partition}", content=b"key:value"),
        http.get(f"/topics/{topic}/fetch/{partition}?offset=0"),
    ):
        is_a_number = partition < 2**31  # of Kafka's
        expected = (404, "UnknownPartition") if is_a_number else (400, "InvalidRequest")
        assert (answer.status_code, answer.json()["code"]) == expected
