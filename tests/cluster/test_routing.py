"""Clients that ask any one broker of several reach what all of them own, also when it moves under their hands."""

import asyncio
import itertools
import time
from collections import Counter
from datetime import UTC, datetime

import aiokafka
import httpx
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AioNewTopic
from aiokafka.errors import TopicAlreadyExistsError
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient, ConfigResource
from tests.cluster.near import LOOK_SECONDS, SECONDS_MAX, near_brokers
from tests.shards import owned_shards

from millpond.client import AsyncAdmin, AsyncConsumer, AsyncProducer, AsyncPublisher, AsyncSubscriber
from millpond.model.errors import InvalidRequest
from millpond.security import OPEN_ACCESS
from millpond.service import PollRequest

pytestmark = pytest.mark.usefixtures("no_read_timeout")

PARTITIONS = 6


@pytest.fixture
async def near(tmp_path):
    async with near_brokers(tmp_path, 3) as near:
        yield near


@pytest.fixture
async def orders(near):
    """A topic whose partitions are spread over all three."""
    await near.brokers[0].log.create_topic("orders", PARTITIONS)
    await near.settled()
    assert len({near.owner("orders", number).node_id for number in range(PARTITIONS)}) == 3
    return "orders"


async def eventually(check, what):
    async with asyncio.timeout(SECONDS_MAX):
        while not (answer := await check()):
            await asyncio.sleep(LOOK_SECONDS)
    return answer


async def fill(near, topic, count=30):
    """So many messages, over all partitions."""
    async with AsyncProducer(topic, address=near.addresses("grpc")[0]) as producer:
        for number in range(count):
            await producer.send(b"%d" % number, partition=number % PARTITIONS)
    return sorted(b"%d" % number for number in range(count))


# -- Kafka ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bootstrap", range(3))
async def test_aiokafka_bootstraps_from_any_one(near, orders, bootstrap):
    address = near.addresses("kafka")[bootstrap]
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=address, enable_idempotence=True)
    await producer.start()
    for number in range(PARTITIONS * 5):
        await producer.send_and_wait(orders, b"%d" % number, partition=number % PARTITIONS)
    await producer.stop()
    consumer = aiokafka.AIOKafkaConsumer(
        orders, bootstrap_servers=address, group_id=f"g{bootstrap}", auto_offset_reset="earliest"
    )
    await consumer.start()
    found = []
    async with asyncio.timeout(SECONDS_MAX):
        while len(found) < PARTITIONS * 5:
            batches = (await consumer.getmany(timeout_ms=500)).values()
            found += [record.value for batch in batches for record in batch]
    await consumer.commit()
    await consumer.stop()
    assert sorted(found, key=int) == [b"%d" % number for number in range(PARTITIONS * 5)]


@pytest.mark.parametrize("bootstrap", range(3))
async def test_confluent_kafka_does_transactions_over_all_brokers_from_any_one(near, orders, bootstrap):
    def work():
        address = near.addresses("kafka")[bootstrap]
        settings = {"bootstrap.servers": address, "transactional.id": f"moves-{bootstrap}"}
        producer = ConfluentProducer(settings)
        producer.init_transactions(SECONDS_MAX)
        for turn, end in enumerate((producer.commit_transaction, producer.abort_transaction)):
            producer.begin_transaction()
            for number in range(PARTITIONS):
                producer.produce(orders, b"%d-%d" % (turn, number), partition=number)
            producer.flush(SECONDS_MAX)
            end(SECONDS_MAX)
        consumer = ConfluentConsumer(
            {
                "bootstrap.servers": address,
                "group.id": f"readers-{bootstrap}",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([orders])
        found = []
        while len(found) < PARTITIONS:
            found += [each.value() for each in consumer.consume(PARTITIONS, 1.0) if each.error() is None]
        consumer.commit(asynchronous=False)
        committed = consumer.committed(
            [ConfluentPartition(orders, number) for number in range(PARTITIONS)], 30
        )
        consumer.close()
        return found, [each.offset for each in committed]

    found, committed = await asyncio.to_thread(work)
    assert sorted(found) == [b"0-%d" % number for number in range(PARTITIONS)]
    assert all(offset > 0 for offset in committed)


async def test_kafka_clients_go_on_while_everything_moves_from_one_broker_to_the_next(near, orders):
    """Partitions and the group's coordinator: NOT_LEADER_OR_FOLLOWER and NOT_COORDINATOR are theirs to deal with."""
    address = ",".join(near.addresses("kafka"))
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=address, enable_idempotence=True)
    consumer = aiokafka.AIOKafkaConsumer(
        orders, bootstrap_servers=address, group_id="movers", auto_offset_reset="earliest"
    )
    await producer.start()
    await consumer.start()
    sent, found, stop, all_sent = [], [], asyncio.Event(), asyncio.Event()

    async def send():
        while not stop.is_set():
            value = b"%d" % len(sent)
            await producer.send_and_wait(orders, value, partition=len(sent) % PARTITIONS)
            sent.append(value)
        all_sent.set()

    async def read():
        while not all_sent.is_set() or not set(sent) <= set(found):
            for batch in (await consumer.getmany(timeout_ms=200)).values():
                found.extend(record.value for record in batch)

    work = asyncio.gather(send(), read())
    for broker in near.brokers:
        await broker.cluster.drain(broker.node_id, access=OPEN_ACCESS)
        await eventually(lambda broker=broker: _owns_nothing(broker), "drained")
        before = len(sent)
        await eventually(lambda before=before: _longer(sent, before + 20), "it goes on")
        await broker.cluster.drain(broker.node_id, undo=True, access=OPEN_ACCESS)
        await near.settled()
    stop.set()
    async with asyncio.timeout(SECONDS_MAX):
        await work
        await (
            consumer.commit()
        )  # aiokafka 0.14 looks for no coordinator any more once it stops, and then tries for ever
        await consumer.stop()
        await producer.stop()
    assert set(found) == set(sent), "all of them were read"
    ends = [near.owner(orders, number).log for number in range(PARTITIONS)]
    stored = [log.partition(log.topics.partition(orders, n)).end_offset for n, log in enumerate(ends)]
    assert sum(stored) == len(sent), "each of them is stored once"


async def _owns_nothing(broker):
    return not broker.log.partitions() and not owned_shards(broker)


async def _longer(values, count):
    return len(values) >= count


async def test_a_kafka_admin_sees_all_brokers_and_asks_each_for_what_it_keeps(near, orders):
    def work():
        admin = AdminClient({"bootstrap.servers": near.addresses("kafka")[2]})
        seen = admin.list_topics(timeout=30)
        groups = [f"group-{number}" for number in range(12)]
        for group in groups:
            consumer = ConfluentConsumer({"bootstrap.servers": near.addresses("kafka")[0], "group.id": group})
            consumer.commit(offsets=[ConfluentPartition(orders, 0, 0)], asynchronous=False)
            consumer.close()
        listed = {each.group_id for each in admin.list_consumer_groups(request_timeout=30).result().valid}
        configs = {}
        for node in seen.brokers:
            asked = [ConfigResource(ConfigResource.Type.BROKER, str(node))]
            configs[node] = next(iter(admin.describe_configs(asked, request_timeout=30).values())).result()
        return seen, set(groups), listed, configs

    seen, groups, listed, configs = await asyncio.to_thread(work)
    assert sorted(seen.brokers) == sorted(each.node_id for each in near.brokers)
    leaders = {number: each.leader for number, each in seen.topics[orders].partitions.items()}
    assert leaders == {number: near.owner(orders, number).node_id for number in range(PARTITIONS)}
    assert groups <= listed
    assert len(configs) == 3
    assert all(configs.values())


def three_groups_of_each(brokers):
    """Names of groups, by who coordinates them."""
    found = {broker.node_id: [] for broker in brokers}
    numbers = itertools.count()
    while any(len(names) < 3 for names in found.values()):
        name = f"readers-{next(numbers)}"
        found[brokers[0].owners.coordinator(name).node_id].append(name)
    return [name for names in found.values() for name in names[:3]]


async def test_groups_are_listed_and_described_from_any_broker(near, orders):
    await fill(near, orders)
    groups = sorted(three_groups_of_each(near.brokers))
    for group in groups:
        async with AsyncConsumer(orders, group=group, address=near.addresses("grpc")[0]) as consumer:
            await consumer.poll(1.0)
    async with httpx.AsyncClient(timeout=60) as http:
        for broker in near.brokers:
            async with AsyncAdmin(address=broker.listeners["grpc"]) as admin:
                assert [each.name for each in await admin.list_groups()] == groups
                for group in groups:
                    assert (await admin.describe_group(group)).group.name == group
            listed = (await http.get(f"http://{broker.listeners['http']}/groups")).json()
            assert [each["group"] for each in listed["groups"]] == groups


# -- topics, at once and everywhere -----------------------------------------------------------------------------


async def test_a_topic_made_on_one_broker_is_there_for_clients_of_all_at_once(near):
    first = AsyncAdmin(address=near.addresses("grpc")[0])
    async with first:
        for turn in range(5):
            name = f"made-{turn}"
            await first.create_topic(name, partitions=3)
            for address in near.addresses("grpc"):
                async with AsyncAdmin(address=address) as admin:
                    assert (await admin.describe_topic(name)).topic.partitions == 3


async def test_a_broker_that_has_not_heard_of_a_topic_looks_before_it_refuses(tmp_path):
    """Without gRPC the brokers cannot tell each other anything: each looks by itself, now and then."""
    async with near_brokers(tmp_path, 2, grpc_listen="") as near, httpx.AsyncClient(timeout=60) as http:
        maker, other = near.brokers
        topics = f"http://{other.listeners['http']}/topics"
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=other.listeners["kafka"])
        await consumer.start()
        for turn in range(10):
            name = f"over-http-{turn}"
            await maker.log.create_topic(name, 3)
            assert (await http.get(f"{topics}/{name}")).status_code == 200
            await maker.log.delete_topic(name)
            made = await http.post(topics, json={"name": name, "partitions": 1})
            assert made.status_code == 200, "what was deleted elsewhere does not stand in the way"
            await maker.log.create_topic(f"over-kafka-{turn}", 3)
            offsets = await consumer.end_offsets([aiokafka.TopicPartition(f"over-kafka-{turn}", 0)])
            assert list(offsets.values()) == [0]
        assert (await http.get(f"{topics}/never-made")).status_code == 404
        await consumer.stop()


async def test_two_brokers_make_the_same_topic_and_one_of_them_is_told(near):
    async def make(address):
        admin = AIOKafkaAdminClient(bootstrap_servers=address)
        await admin.start()
        try:
            answer = await admin.create_topics([AioNewTopic("twice", 2, 1)])
            return answer.topic_errors[0][1]
        except TopicAlreadyExistsError as error:
            return error.errno
        finally:
            await admin.close()

    codes = await asyncio.gather(*map(make, near.addresses("kafka")))
    assert sorted(codes) == [0, 36, 36]


# -- gRPC and the client library --------------------------------------------------------------------------------


async def test_the_client_library_follows_partitions_that_move(near, orders):
    values = []
    async with AsyncProducer(orders, address=near.addresses("grpc")[0]) as producer:
        for broker in near.brokers:
            await broker.cluster.drain(broker.node_id, access=OPEN_ACCESS)
            for number in range(PARTITIONS):
                values.append(b"%d" % len(values))
                await producer.send(values[-1], partition=number)
            await broker.cluster.drain(broker.node_id, undo=True, access=OPEN_ACCESS)
            await near.settled()
    async with AsyncConsumer(orders, address=near.addresses("grpc")[1]) as consumer:
        found = []
        async with asyncio.timeout(SECONDS_MAX):
            while len(found) < len(values):
                found += [each.value for each in (await consumer.poll(1.0)).messages]
    assert sorted(found, key=int) == values


async def test_one_call_reads_what_several_brokers_own(near, orders):
    """From any of them: nobody can be sent to the one who has it all."""
    values = await fill(near, orders)
    for broker in near.brokers:
        found = await broker.poller.poll(_poll(orders))
        assert sorted(record.value for _, record in found.records) == values
        waiting = asyncio.create_task(broker.poller.poll(_poll(orders, found.read_positions, wait_ms=30_000)))
        await asyncio.sleep(0)
        async with AsyncProducer(orders, address=near.addresses("grpc")[0]) as producer:
            other = next(n for n in range(PARTITIONS) if near.owner(orders, n) is not broker)
            await producer.send(b"late", partition=other)
        assert [record.value for _, record in (await waiting).records] == [b"late"]
        values.append(b"late")


def _poll(topic, standings=(), wait_ms=0):
    return PollRequest(topic, {each.partition: each.next_offset for each in standings}, wait_ms=wait_ms)


async def test_what_reads_elsewhere_shows_no_aborted_and_no_undecided_messages(near, orders):
    def transactions():
        producer = ConfluentProducer(
            {"bootstrap.servers": near.addresses("kafka")[0], "transactional.id": "undecided"}
        )
        producer.init_transactions(SECONDS_MAX)
        for value, end in ((b"kept", producer.commit_transaction), (b"gone", producer.abort_transaction)):
            producer.begin_transaction()
            for number in range(PARTITIONS):
                producer.produce(orders, value, partition=number)
            producer.flush(SECONDS_MAX)
            end(SECONDS_MAX)
        producer.begin_transaction()
        for number in range(PARTITIONS):
            producer.produce(orders, b"open", partition=number)
        producer.flush(SECONDS_MAX)
        return producer

    producer = await asyncio.to_thread(transactions)
    for broker in near.brokers:
        found = await broker.poller.poll(_poll(orders))
        assert [record.value for _, record in found.records] == [b"kept"] * PARTITIONS
    await asyncio.to_thread(producer.commit_transaction, SECONDS_MAX)
    everything = [b"kept"] * PARTITIONS + [b"open"] * PARTITIONS
    for broker in near.brokers:

        async def reads_all(broker=broker):
            found = await broker.poller.poll(_poll(orders))
            return sorted(record.value for _, record in found.records) == everything

        await eventually(reads_all, "whoever owns a partition hears that it is decided")


async def test_times_are_found_in_all_partitions_whoever_owns_them(near, orders):
    now_ms = int(time.time() * 1000)
    async with AsyncProducer(orders, address=near.addresses("grpc")[0]) as producer:
        for number in range(PARTITIONS):
            for age_ms in (3_000, 2_000, 1_000):
                await producer.send(b"x", partition=number, timestamp_ms=now_ms - age_ms)
    for address in near.addresses("grpc"):
        async with AsyncAdmin(address=address) as admin:
            assert await admin.find_by_time(orders, now_ms - 2_000) == dict.fromkeys(range(PARTITIONS), 2)
            assert await admin.find_by_time(orders, now_ms) == dict.fromkeys(range(PARTITIONS), 4)


async def test_a_client_with_several_addresses_needs_one_that_answers(near, orders):
    gone, *others = near.brokers
    addresses = near.addresses("grpc")
    await near.remove(gone)
    await near.settled()
    async with AsyncPublisher(address=addresses) as publisher:
        for number in range(PARTITIONS):
            await publisher.send(b"to whoever is there", topic=orders, key=b"%d" % number)
    async with AsyncAdmin(address=",".join(addresses)) as admin:
        assert len((await admin.cluster()).brokers) == len(others)


# -- HTTP -------------------------------------------------------------------------------------------------------


async def test_http_sends_a_client_to_the_owner_with_307(near, orders):
    async with httpx.AsyncClient(follow_redirects=True, timeout=60) as http:
        for number in range(PARTITIONS):
            for broker in near.brokers:
                url = f"http://{broker.listeners['http']}/topics/{orders}/fetch/{number}"
                answer = await http.get(url)
                assert answer.status_code == 200, answer.text
                at = near.owner(orders, number).listeners["http"]
                assert answer.url.netloc.decode() == at
                assert bool(answer.history) == (at != broker.listeners["http"])
                assert all(each.status_code == 307 for each in answer.history)


async def test_messages_without_a_key_stay_with_the_broker_that_was_asked(near, orders):
    """It has partitions of its own: a client that was sent to an owner would be sent on from there."""
    async with httpx.AsyncClient(follow_redirects=False, timeout=60) as http:
        for broker in near.brokers:
            for _ in range(PARTITIONS):
                answer = await http.post(
                    f"http://{broker.listeners['http']}/topics/{orders}/produce", content=b"x"
                )
                assert answer.status_code == 200
                assert near.owner(orders, answer.json()["partition"]) is broker


@pytest.mark.parametrize("through", range(3))
async def test_one_request_with_messages_for_all_brokers_is_stored_whole_and_seen_at_once(
    near, orders, through
):
    """Also by those who wait at the owners, and each message where the answer says."""
    owners = {near.owner(orders, number) for number in range(PARTITIONS)}
    waiting = {
        number: asyncio.create_task(
            near.owner(orders, number).poller.poll(PollRequest(orders, {number: 0}, wait_ms=30_000))
        )
        for number in range(PARTITIONS)
    }
    keyed = [{"key": f"k{number}", "value": f"v{number}"} for number in range(60)]
    async with httpx.AsyncClient(timeout=60) as http:
        url = f"http://{near.addresses('http')[through]}/topics/{orders}/produce"
        answer = await http.post(url, json={"messages": keyed})
    assert answer.status_code == 200, answer.text
    places = [(each["partition"], each["offset"]) for each in answer.json()["messages"]]
    assert len(owners) == 3
    assert len(set(places)) == len(keyed)
    found = {}
    for number, task in waiting.items():
        if any(partition == number for partition, _ in places):
            for _, record in (await task).records:
                found[number, record.offset] = record.value
        else:
            task.cancel()
    assert [found[place].decode() for place in places] == [each["value"] for each in keyed]


async def test_a_pull_says_where_the_rest_is_and_all_of_them_together_are_complete(near, orders):
    values = await fill(near, orders)
    async with AsyncAdmin(address=near.addresses("grpc")[0]) as admin:
        await admin.create_subscription(orders, "jobs")
    path = f"/topics/{orders}/subscriptions/jobs"
    found, turns = [], Counter()
    async with httpx.AsyncClient(follow_redirects=True, timeout=60) as http:
        asked, wanted = set(), {near.addresses("http")[1]}
        async with asyncio.timeout(SECONDS_MAX):
            while wanted - asked or len(found) < len(values):
                at = min(wanted - asked or wanted, key=lambda each: (each in asked, turns[each]))
                turns[at] += 1
                asked.add(at)
                answer = (
                    await http.post(f"http://{at}{path}/pull", json={"consumer": "c", "messages_max": 100})
                ).json()
                wanted |= set(answer["brokers"])
                ids = [each["ack_id"] for each in answer["deliveries"]]
                found += [each["value"].encode() for each in answer["deliveries"]]
                if ids:
                    acked = await http.post(f"http://{at}{path}/ack", json={"consumer": "c", "ack_ids": ids})
                    assert {each["result"] for each in acked.json()["results"]} == {"ok"}
    assert asked == set(near.addresses("http"))
    assert sorted(found) == values
    async with AsyncAdmin(address=near.addresses("grpc")[0]) as admin:
        assert (await admin.describe_subscription(orders, "jobs")).backlog == 0


async def test_a_pull_from_a_broker_without_partitions_is_sent_to_one_that_has_some(near):
    await near.brokers[0].log.create_topic("small", 1)
    await near.settled()
    await near.brokers[0].queues.create("small", "jobs")
    idle = next(each for each in near.brokers if each is not near.owner("small", 0))
    async with httpx.AsyncClient(follow_redirects=False, timeout=60) as http:
        url = f"http://{idle.listeners['http']}/topics/small/subscriptions/jobs/pull"
        answer = await http.post(url, json={"consumer": "c"})
    assert answer.status_code == 307
    assert answer.headers["location"].startswith(f"http://{near.owner('small', 0).listeners['http']}/")


# -- subscriptions ----------------------------------------------------------------------------------------------


async def test_a_subscriber_gets_all_partitions_and_is_described_as_one(near, orders):
    values = await fill(near, orders)
    async with AsyncAdmin(address=near.addresses("grpc")[2]) as admin:
        await admin.create_subscription(orders, "jobs")
        async with AsyncSubscriber(
            orders, "jobs", address=near.addresses("grpc")[1], consumer="me"
        ) as subscriber:
            found = []
            async with asyncio.timeout(SECONDS_MAX):
                async for delivery in subscriber:
                    found.append(await delivery.data())
                    if len(found) == len(values):
                        break
            state = await admin.describe_subscription(orders, "jobs")
            assert [each.partition for each in state.partitions] == list(range(PARTITIONS))
            assert all(each.at_work for each in state.partitions)
            assert [each.name for each in state.consumers] == ["me"]
            assert state.consumers[0].leased == len(values)
    assert sorted(found) == values


async def test_a_subscription_begins_at_a_time_and_gets_its_dead_letters_back_whoever_owns_them(near, orders):
    now_ms = int(time.time() * 1000)
    async with AsyncProducer(orders, address=near.addresses("grpc")[0]) as producer:
        for number in range(PARTITIONS):
            for age_ms in (5_000, 1_000):
                await producer.send(b"x", partition=number, timestamp_ms=now_ms - age_ms)
    start = datetime.fromtimestamp(now_ms / 1000 - 2, UTC)
    async with AsyncAdmin(address=near.addresses("grpc")[1]) as admin:
        await admin.create_subscription(orders, "late", {"attempts_max": 1}, read_from=start)
        assert (await admin.describe_subscription(orders, "late")).backlog == PARTITIONS
        async with AsyncSubscriber(orders, "late", address=near.addresses("grpc")[0]) as subscriber:
            refused = 0
            async for delivery in subscriber:
                await delivery.nack()
                refused += 1
                if refused == PARTITIONS:
                    break
        state = await admin.describe_subscription(orders, "late")

        async def moved():
            found = await admin.describe_subscription(orders, "late")
            return found.dead_letters_waiting == 0

        await eventually(moved, "the letters are in their topic")
    await near.settled()
    owner = near.owner(state.dead_letter_topic, 0)
    other = next(each for each in near.brokers if each is not owner)
    async with AsyncAdmin(address=other.listeners["grpc"]) as admin:
        assert await admin.redrive(orders, "late") == PARTITIONS
        assert await admin.redrive(orders, "late") == 0
        assert (await admin.describe_subscription(orders, "late")).backlog == PARTITIONS


# -- draining ---------------------------------------------------------------------------------------------------


async def test_draining_and_its_undoing_over_the_client_library(near, orders):
    async with AsyncAdmin(address=near.addresses("grpc")[0]) as admin:
        target = near.brokers[1].node_id
        await admin.drain(target)

        async def is_empty():
            return (await admin.cluster()).broker(target).is_empty

        await eventually(is_empty, "drained")
        found = await admin.cluster()
        assert found.is_even
        assert (found.partitions, found.unowned) == (PARTITIONS, 0)
        await admin.drain(target, undo=True)
        await near.settled()
        assert (await admin.rebalance()).is_even
        with pytest.raises(InvalidRequest, match="no broker 99"):
            await admin.drain(99)
        await admin.drain(near.brokers[0].node_id)
        await admin.drain(near.brokers[1].node_id)
        with pytest.raises(InvalidRequest, match="no other broker"):
            await admin.drain(near.brokers[2].node_id)


async def test_http_shows_the_cluster_as_any_broker_sees_it(near, orders):
    async with httpx.AsyncClient(timeout=60) as http:
        for broker in near.brokers:
            found = (await http.get(f"http://{broker.listeners['http']}/cluster")).json()
            assert [each["partitions"] for each in found["brokers"]] == [2, 2, 2]
            assert {each["state"] for each in found["brokers"]} == {"serving"}
            assert [each["listeners"]["http"] for each in found["brokers"]] == near.addresses("http")
            assert (found["partitions"], found["unowned"]) == (PARTITIONS, 0)
