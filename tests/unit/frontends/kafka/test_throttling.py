"""Clients beyond their quotas: what their responses say, and when their connections are read again."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from tests.unit.frontends.kafka import authorization_cases as cases
from tests.unit.frontends.kafka.secured import ADMIN, SETTINGS, Cluster
from tests.unit.frontends.kafka.wire import Client

from millpond.frontends.kafka import rights as r
from millpond.frontends.kafka.throttling import Mute, RequestUse, measured
from millpond.log import topic_quotas
from millpond.model.quotas import EVERY_NAME, QuotaEntity
from millpond.protocol import ErrorCode, encode_request
from millpond.protocol.messages.api_versions import ApiVersionsRequest
from millpond.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from millpond.protocol.messages.quotas import DescribeClientQuotasRequest
from millpond.protocol.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from millpond.testing import SimulatedClock, running_broker

RATE = 10
"""Bytes a second: every request exceeds it, for about ten seconds, much less than a client waits for its answer."""
METADATA = 9
PATIENCE_S = 60
LATER_S = 86_400


class Throttled:
    """A broker whose quotas follow a clock that stands still, and a client of the user alice."""

    def __init__(self, cluster, stack, clock, loop_time):
        self.cluster, self.clock, self.loop_time = cluster, clock, loop_time
        self.broker = cluster.broker
        self._stack = stack

    async def limit(self, entity=("alice", None), **values):
        await self.cluster.administration.alter_quotas(self.cluster.access, [(QuotaEntity(*entity), values)])

    async def connected(self, user="alice"):
        return await self.cluster.connected(self._stack, user)

    @property
    def connections(self):
        return list(self.broker.kafka._connections)

    async def is_read_after(self, client, delay_ms):
        """Nothing is served until the delay is over."""
        answer = asyncio.create_task(client.send(MetadataRequest(topics=[]), METADATA))
        for _ in range(50):
            await asyncio.sleep(0)
        assert not answer.done()
        assert any(each.is_muted for each in self.connections)
        self.loop_time.advance(delay_ms / 1000)
        return (await answer).controller_id >= 0


async def until(condition):
    async def poll():
        while not condition():
            await asyncio.sleep(0.001)

    await asyncio.wait_for(poll(), PATIENCE_S)


@pytest.fixture
async def throttled(loop_time, monkeypatch):
    monkeypatch.setattr(topic_quotas, "REFRESH_S", LATER_S)  # only tests refresh them
    clock = SimulatedClock()
    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(running_broker(kafka=True, clock=clock, **SETTINGS))
        cluster = Cluster(broker)
        for user in ("alice", "bob", ADMIN.name):
            await cluster.user(user)
        rights = (r.WRITE_TOPIC, r.READ_TOPIC, r.CREATE_CLUSTER, r.DELETE_TOPIC, r.ALTER_TOPIC)
        await cluster.grant(*rights, to="User:*")
        made = await broker.log.create_topic(cases.TOPIC, 2, {})
        one = Throttled(cluster, stack, clock, loop_time)
        one.ids = lambda version: cases.Ids(made.id, version)
        yield one


def produce_request(throttled, acks=-1):
    request = cases.produced(throttled.ids(9))
    request.acks = acks
    return request


def bytes_of(request, version):
    return encode_request(request, version, 1, "wire").size - 4


def delay_of(used, rate, burst_s=1):
    return int((used - rate * burst_s) * 1000 / rate) + 1


async def test_a_produce_is_stored_and_its_connection_is_read_again_after_the_delay(throttled):
    await throttled.limit(producer_byte_rate=RATE)
    client, request = await throttled.connected(), produce_request(throttled)
    response = await client.send(request, 9)
    delay_ms = delay_of(bytes_of(request, 9), RATE)
    assert response.responses[0].partition_responses[0].error_code == 0
    assert response.throttle_time_ms == delay_ms
    assert await throttled.is_read_after(client, delay_ms)


async def test_clients_of_one_user_share_its_quota_and_others_do_not(throttled):
    await throttled.limit(producer_byte_rate=RATE)
    one, two, other = [await throttled.connected(user) for user in ("alice", "alice", "bob")]
    request = produce_request(throttled)
    size = bytes_of(request, 9)
    assert (await one.send(request, 9)).throttle_time_ms == delay_of(size, RATE)
    assert (await two.send(request, 9)).throttle_time_ms == delay_of(2 * size, RATE)
    assert (await other.send(request, 9)).throttle_time_ms == 0
    assert [each.is_muted for each in throttled.connections].count(True) == 2


async def test_a_producer_that_keeps_its_delays_gets_its_rate(throttled):
    """By the clock of the broker, which only the delays move."""
    await throttled.limit(producer_byte_rate=1_000)
    client, request = await throttled.connected(), produce_request(throttled)
    began, sent = throttled.clock.monotonic_ms(), 0
    for _ in range(100):
        delay_ms = (await client.send(request, 9)).throttle_time_ms
        sent += bytes_of(request, 9)
        throttled.clock.advance(delay_ms)
        throttled.loop_time.advance(delay_ms / 1000)
    passed_s = (throttled.clock.monotonic_ms() - began) / 1000
    assert sent == pytest.approx(1_000 * (passed_s + 1), rel=0.05)


async def test_a_produce_without_a_response_delays_what_follows(throttled):
    await throttled.limit(producer_byte_rate=RATE)
    client, request = await throttled.connected(), produce_request(throttled, acks=0)
    client._writer.writelines(encode_request(request, 9, 0, "wire").buffers)
    await until(lambda: any(each.is_muted for each in throttled.connections))
    assert await throttled.is_read_after(client, delay_of(bytes_of(request, 9), RATE))


async def test_a_fetch_beyond_the_quota_is_empty_and_counts_nothing(throttled):
    await throttled.broker.produce(cases.TOPIC, b"v" * 100)
    await throttled.limit(consumer_byte_rate=RATE)
    client, request = await throttled.connected(), cases.fetched(throttled.ids(11))
    first = await client.send(request, 11)
    assert first.responses[0].partitions[0].records
    assert first.throttle_time_ms > 0
    throttled.loop_time.advance(first.throttle_time_ms / 1000)
    for _ in range(2):  # the clock of the quota stands still
        second = await client.send(request, 11)
        assert (second.responses, second.throttle_time_ms) == ([], first.throttle_time_ms)
        throttled.loop_time.advance(first.throttle_time_ms / 1000)
    throttled.clock.advance(first.throttle_time_ms)
    assert (await client.send(request, 11)).responses[0].partitions[0].records


async def test_the_time_of_every_request_counts(throttled):
    await throttled.limit(request_percentage=1e-9)
    client = await throttled.connected()
    for _ in range(3):
        response = await client.send(MetadataRequest(topics=[]), METADATA)
        assert response.throttle_time_ms == 1_001  # the maximum for this quota
        throttled.loop_time.advance(1.001)


async def test_what_comes_before_the_login_counts_for_no_quota(throttled):
    """Neither a flood of other clients that have not logged in, nor the names that they invent."""
    for entity in ((EVERY_NAME, EVERY_NAME), (None, EVERY_NAME)):
        await throttled.limit(entity, request_percentage=1e-9)
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    async with Client(throttled.broker.kafka.listener) as flooding:
        for _ in range(5):
            assert (await flooding.send(request, 3)).throttle_time_ms == 0
        assert not any(each.is_muted for each in throttled.connections)
        assert not throttled.broker.security.quotas._found
        client = await throttled.connected()
    assert (await client.send(request, 3)).throttle_time_ms == 1_001


def created(name, partitions, **options):
    topic = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
    )
    return CreateTopicsRequest(topics=[topic], timeout_ms=1_000, **options)


def more_partitions(name, count):
    asked = CreatePartitionsTopic(name=name, count=count, assignments=None)
    return CreatePartitionsRequest(topics=[asked], timeout_ms=1_000, validate_only=False)


async def test_changes_of_topics_beyond_the_quota_are_refused(throttled):
    await throttled.limit(controller_mutation_rate=1)
    client = await throttled.connected()
    accepted = await client.send(created("large", 20), 7)
    assert (accepted.topics[0].error_code, accepted.throttle_time_ms) == (0, 0)
    for request, version in (
        (created("other", 1), 6),
        (more_partitions("large", 21), 3),
        (DeleteTopicsRequest(topic_names=["large"], timeout_ms=1_000), 5),
        (DeleteTopicsRequest(topics=[DeleteTopicState(name="large")], timeout_ms=1_000), 6),
    ):
        response = await client.send(request, version)
        [result] = (
            getattr(response, "topics", None) or getattr(response, "results", None) or response.responses
        )
        assert result.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert response.throttle_time_ms == 10_001  # 20 partitions, of which 10 were the burst
        throttled.loop_time.advance(10.001)
    assert throttled.broker.log.topics.named("large").partitions == 20
    checked = await client.send(created("other", 1, validate_only=True), 7)
    assert (checked.topics[0].error_code, checked.throttle_time_ms) == (0, 0)
    throttled.clock.advance(10_001)
    assert (await client.send(created("other", 1), 7)).topics[0].error_code == 0


async def test_older_clients_that_change_topics_are_served_and_wait(throttled):
    await throttled.limit(controller_mutation_rate=1)
    client = await throttled.connected()
    response = await client.send(created("large", 20), 5)
    assert (response.topics[0].error_code, response.throttle_time_ms) == (0, 10_001)
    throttled.loop_time.advance(10.001)
    response = await client.send(more_partitions("large", 25), 2)
    assert (response.results[0].error_code, response.throttle_time_ms) == (0, 15_001)
    throttled.loop_time.advance(15.001)
    response = await client.send(DeleteTopicsRequest(topic_names=["large"], timeout_ms=1_000), 4)
    assert (response.responses[0].error_code, response.throttle_time_ms) == (0, 40_001)
    throttled.loop_time.advance(40.001)
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="new")], allow_auto_topic_creation=True)
    assert (await client.send(asked, METADATA)).throttle_time_ms == 41_001


async def test_a_client_that_disconnects_while_it_waits_is_noticed_at_the_end(throttled):
    await throttled.limit(producer_byte_rate=RATE)
    client, request = await throttled.connected(), produce_request(throttled)
    delay_ms = (await client.send(request, 9)).throttle_time_ms
    client._writer.close()
    throttled.loop_time.advance(delay_ms / 1000)
    await until(lambda: not throttled.connections)


async def test_a_client_whose_password_is_changed_while_it_waits_is_disconnected(throttled):
    await throttled.limit(producer_byte_rate=RATE)
    client, request = await throttled.connected(), produce_request(throttled)
    await client.send(request, 9)
    await throttled.cluster.user("alice", "another")
    throttled.broker.kafka.sweep(asyncio.get_running_loop().time())
    await until(lambda: not throttled.connections)


async def test_a_broker_stops_while_clients_wait(throttled):
    await throttled.limit(producer_byte_rate=RATE)
    client, request = await throttled.connected(), produce_request(throttled)
    await client.send(request, 9)
    await asyncio.wait_for(throttled.broker.kafka.stop(), PATIENCE_S)
    assert await client._reader.read() == b""
    assert not throttled.connections


async def test_without_quotas_a_request_counts_nothing(throttled):
    client = await throttled.connected()
    assert (await client.send(produce_request(throttled), 9)).throttle_time_ms == 0
    assert not throttled.broker.security.quotas._buckets


async def test_the_connections_of_an_address_are_limited_before_they_authenticate(serving):
    face = await serving(connections_per_address_max=1, security=True)
    listener = face.broker.kafka.listener
    async with AsyncExitStack() as stack:
        for _ in range(19):  # one is connected already, and loopback addresses may have 20 times as many
            await stack.enter_async_context(Client(listener))
        await until(lambda: len(face.broker.kafka._connections) == 20)
        async with Client(listener) as refused:
            assert await refused._reader.read() == b""
    await until(lambda: len(face.broker.kafka._connections) == 1)
    async with Client(listener) as again:
        assert (await again.send(ApiVersionsRequest(), 0)).error_code == 0


async def test_a_connection_that_comes_too_fast_is_read_later(throttled):
    await throttled.limit((None, None, "127.0.0.1"), connection_creation_rate=1)
    await throttled.connected()
    for _ in range(4):  # a delay that a machine which stands still does not reach
        throttled.broker.interfaces._addresses.admit("127.0.0.1")
        throttled.broker.interfaces._addresses.forget("127.0.0.1")
    task = asyncio.create_task(throttled.connected("bob"))
    await until(lambda: any(each.is_muted for each in throttled.connections))
    assert not task.done()
    throttled.loop_time.advance(5.001)
    assert (await (await task).send(MetadataRequest(topics=[]), METADATA)).controller_id >= 0


async def test_the_time_of_the_login_begins_when_the_connection_is_read(throttled):
    """After a reconnect storm of one address, such as that of a proxy."""
    await throttled.limit((None, None, "127.0.0.1"), connection_creation_rate=1)
    await throttled.connected()
    server, login_s = throttled.broker.kafka, throttled.broker.kafka._limits.login_ms / 1000
    async with Client(server.listener) as client:
        await until(lambda: any(each.is_muted for each in throttled.connections))
        [waiting] = [each for each in throttled.connections if each.is_muted]
        server.sweep(waiting._login_began_at + login_s + 1)
        throttled.loop_time.advance(1.001)
        await until(lambda: not waiting.is_muted)
        server.sweep(waiting._login_began_at + login_s - 0.1)
        assert (await client.send(ApiVersionsRequest(), 0)).error_code == 0
        server.sweep(waiting._login_began_at + login_s + 0.1)
        assert waiting._transport.is_closing()


async def test_a_produce_to_a_topic_that_has_stored_its_quota_is_refused(throttled):
    await throttled.broker.produce(cases.TOPIC, b"v" * 100)
    await throttled.limit((None, None, None, "ord*"), stored_bytes=100)
    await throttled.broker.topic_quotas.refresh(throttled.broker.log.read)
    client = await throttled.connected()
    response = await client.send(produce_request(throttled), 9)
    [part] = response.responses[0].partition_responses
    assert part.error_code == ErrorCode.POLICY_VIOLATION
    assert "'ord*' allows 100 stored bytes" in part.error_message
    admin = await throttled.connected(ADMIN.name)
    listed = await admin.send(DescribeClientQuotasRequest(components=[], strict=False), 1)
    assert listed.entries == []


async def test_a_longer_delay_extends_the_time_and_a_shorter_one_does_not(loop_time):
    ended = []
    mute = Mute(asyncio.get_running_loop(), lambda: ended.append(True))
    for delay_ms in (50_000, 3_600_000, 10):
        mute.extend(delay_ms)
    for advance_s, is_over in ((3_500, False), (101, True)):
        loop_time.advance(advance_s)
        for _ in range(5):
            await asyncio.sleep(0)
        assert (mute.is_on, bool(ended)) == (not is_over, is_over)
    assert ended == [True]


# -- the time of a handler ------------------------------------------------------------------------------------


class Steps:
    """A clock that moves by one second each time that it is read."""

    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        self.now_s += 1
        return self.now_s


async def test_the_steps_of_a_handler_are_counted_and_its_waits_are_not():
    async def handler():
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return "done"

    use = RequestUse(0)
    assert await measured(handler(), use, Steps()) == "done"
    assert use.handler_s == 3


async def test_an_error_and_a_cancellation_reach_the_handler():
    reached = []

    async def waits():
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            reached.append("cancelled")
            raise

    async def fails():
        await asyncio.sleep(0)
        raise LookupError("x")

    task = asyncio.ensure_future(measured(waits(), RequestUse(0)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert reached == ["cancelled"]
    with pytest.raises(LookupError):
        await measured(fails(), RequestUse(0))
