"""Brokers that come, share, leave and die, with the real log under them."""

import asyncio

import pytest
from tests.loop_time import LoopClock
from tests.shards import owned_shards
from tests.unit.cluster.conftest import owned, until

from millpond.catalog import published_settings, topology, writers
from millpond.catalog.published_settings import PublishedSettings
from millpond.catalog.schema import COORDINATOR_SHARDS
from millpond.cluster import membership
from millpond.model.errors import (
    Fenced,
    InvalidSettings,
    MillpondError,
    NotCoordinator,
    NotOwner,
    Unavailable,
    WriterDead,
)
from millpond.security import OPEN_ACCESS
from millpond.testing import running_broker
from millpond.topology import addresses_of


def lease_rest(broker):
    with broker.database.read() as tx:
        return writers.lease_remaining_ms(tx)[broker.session]


LEASE_MS = 60_000


async def pass_heartbeats(broker, loop_time, condition):
    """Time passes from one heartbeat of the broker to the next, until the condition is true."""
    for _ in range(2 * membership.HEARTBEATS_PER_LEASE):
        renewed_ms = broker.lease._renewed_at_ms
        loop_time.advance(LEASE_MS / membership.HEARTBEATS_PER_LEASE / 1000)
        await until(lambda before=renewed_ms: condition() or broker.lease._renewed_at_ms > before)
        if condition():
            return
    raise AssertionError("it did not become true within two leases")


async def declare_dead(judge, broker):
    """As if its lease had run out: what another broker does that sees it."""

    def mark_dead(tx):
        writers.mark_dead(tx, broker.session, 1)
        topology.bump_version(tx)
        topology.adopt(tx)

    await judge.log.write(mark_dead, own_commit=True)
    await judge.log.refresh()


async def test_the_second_broker_gets_half(brokers):
    first = await brokers.add()
    await first.log.create_topic("t", 10)
    await first.produce("t", b"before", partition=3)
    second = await brokers.add()
    await until(lambda: len(owned(second)) == 5)
    assert not owned(first) & owned(second)
    assert len(owned_shards(first)) == len(owned_shards(second)) == COORDINATOR_SHARDS // 2
    assert (first.node_id, second.node_id) == (1, 2)
    holder = next(each for each in (first, second) if each.log.topics.partition("t", 3) in owned(each))
    assert [record.value for record in await holder.read("t", partition=3)] == [b"before"]


async def test_new_topics_are_known_to_all_and_spread(brokers):
    first, second = await brokers.add(), await brokers.add()
    await until(lambda: len(owned_shards(second)) == COORDINATOR_SHARDS // 2)
    await first.log.create_topic("t", 6)
    assert second.log.topics.knows("t")
    assert [len(owned(first)), len(owned(second))] == [3, 3]


async def test_who_asks_the_wrong_broker_is_sent_on(brokers):
    first, second = await brokers.add(), await brokers.add()
    await first.log.create_topic("t", 2)
    elsewhere = next(iter(owned(second))).partition
    with pytest.raises(NotOwner) as refused:
        await first.produce("t", b"x", partition=elsewhere)
    assert refused.value.facts["owner_grpc"] == second.listeners["grpc"]


async def test_one_that_leaves_hands_over_at_once(brokers):
    first, second = await brokers.add(lease=60_000), await brokers.add(lease=60_000)
    await until(lambda: len(owned_shards(second)) == COORDINATOR_SHARDS // 2)
    await first.log.create_topic("t", 4)
    mine = next(iter(owned(second))).partition
    await second.produce("t", b"kept", partition=mine)
    await second.stop()
    await until(lambda: len(owned(first)) == 4)
    assert [record.value for record in await first.read("t", partition=mine)] == [b"kept"]
    assert len(owned_shards(first)) == COORDINATOR_SHARDS
    await first.produce("t", b"next", partition=mine)


async def test_what_was_accepted_before_a_handover_is_answered(brokers):
    first = await brokers.add()
    await first.log.create_topic("t", 8)
    answers = [asyncio.create_task(first.produce("t", b"%d" % n, partition=n % 8)) for n in range(200)]
    await asyncio.sleep(0)
    second = await brokers.add()
    await until(lambda: len(owned(second)) == 4)
    outcomes = await asyncio.gather(*answers, return_exceptions=True)
    kept = sum(not isinstance(each, BaseException) for each in outcomes)
    assert all(isinstance(each, NotOwner) for each in outcomes if isinstance(each, BaseException))
    found = 0
    for number in range(8):
        topic_partition = first.log.topics.partition("t", number)
        holder = first if topic_partition in owned(first) else second
        found += holder.log.partition(topic_partition).end_offset
    assert found == kept


async def test_what_does_not_finish_in_time_is_served_on_and_handed_over_later(brokers, monkeypatch):
    monkeypatch.setattr(membership, "HANDOVER_S", 0.05)
    first = await brokers.add()
    await first.log.create_topic("t", 2)
    can_finish, prepare_handover = asyncio.Event(), first.log.prepare_handover

    async def let_go_later(topic_partitions):
        await prepare_handover(topic_partitions)
        await can_finish.wait()

    monkeypatch.setattr(first.log, "prepare_handover", let_go_later)
    second = await brokers.add()
    await until(lambda: len(owned(first)) < 2)
    await until(lambda: len(owned(first)) == 2)
    can_finish.set()
    await until(lambda: len(owned(second)) == 1)


async def test_a_broker_that_does_not_renew_is_replaced(brokers, loop_time):
    settings = {"clock": LoopClock(loop_time), "lease": LEASE_MS}
    first, second = await brokers.add(**settings), await brokers.add(**settings)
    await until(lambda: len(owned_shards(second)) == COORDINATOR_SHARDS // 2)
    await first.log.create_topic("t", 4)
    zombie = next(iter(owned(second)))
    second._services.cancel()  # it hangs: no renewal, no goodbye
    with second.database.write() as tx:
        writers.renew(tx, second.session, 1)  # by the catalog's clock its lease has run out
    await pass_heartbeats(first, loop_time, lambda: len(owned(first)) == 4)
    assert not second.lease.held
    with pytest.raises(NotOwner):
        second.log.partition(zombie)


async def test_one_that_is_declared_dead_commits_nothing_more(brokers):
    first, second = await brokers.add(), await brokers.add()
    await until(lambda: len(owned_shards(second)) == COORDINATOR_SHARDS // 2)
    await first.log.create_topic("t", 2)
    topic_partition = next(iter(owned(second)))
    await second.produce("t", b"one", partition=topic_partition.partition)
    await declare_dead(first, second)
    with pytest.raises(Fenced):  # by the commit, or because it has heard of it before
        await second.produce("t", b"zombie", partition=topic_partition.partition)
    assert isinstance(await second.failed(), WriterDead)
    assert [record.value for record in await first.read("t", partition=topic_partition.partition)] == [b"one"]


async def test_groups_move_with_their_shards(brokers):
    first = await brokers.add()
    await first.log.create_topic("t", 1)
    second = await brokers.add()
    await until(lambda: len(owned_shards(second)) == COORDINATOR_SHARDS // 2)
    keepers = {}
    for number in range(20):
        keeper, other = (first, second) if first.groups._store.coordinates(f"g{number}") else (second, first)
        keepers[f"g{number}"] = keeper
        assert keeper.owners.coordinator(f"g{number}").node_id == keeper.node_id
        with pytest.raises(NotCoordinator):
            await other.groups.describe(f"g{number}")
    assert set(keepers.values()) == {first, second}


async def test_a_number_that_is_taken_is_refused(brokers):
    await brokers.add(node_id=7)
    with pytest.raises(InvalidSettings, match="a broker with this number"):
        await brokers.add(node_id=7)
    assert (await brokers.add()).node_id == 1


async def test_the_number_of_one_that_died_elsewhere_is_free_after_its_lease(brokers):
    """Nobody else lives who would declare it dead, and it does not come back on its ports, or under its name."""
    first = await brokers.add(node_id=7, lease=600_000)
    await first.log.create_topic("t", 2)
    first._services.cancel()
    with pytest.raises(InvalidSettings, match="a broker with this number"):
        await brokers.add(node_id=7)
    with first.database.write() as tx:
        writers.renew(tx, first.session, 1)
    await until(lambda: lease_rest(first) < 0)
    again = await brokers.add(node_id=7)
    assert again.node_id == 7
    assert len(owned(again)) == 2


async def test_a_restart_on_the_same_ports_does_not_wait_for_the_lease(brokers):
    first = await brokers.add(lease=600_000)
    await first.log.create_topic("t", 2)
    first._services.cancel()
    await (
        first.interfaces.close()
    )  # as after kill -9: the ports are free, and the row in the catalog says it lives
    again = await brokers.add(
        lease=600_000, kafka_listen=first.bound["kafka"], grpc_listen=first.bound["grpc"]
    )
    assert len(owned(again)) == 2
    assert again.node_id == 1


async def test_brokers_of_a_machine_may_share_an_address_of_what_stands_before_them(brokers):
    shared = {"http_listen": "127.0.0.1:0", "http_advertise": "balancer.example:80", "lease": 600_000}
    first, second = await brokers.add(**shared), await brokers.add(**shared)
    assert first.listeners["http"] == second.listeners["http"]
    assert second.topology.current.members.keys() == {first.session, second.session}
    members = second.topology.current.members
    assert addresses_of(members[first.session]) == first.listeners


async def test_brokers_may_share_all_their_addresses_if_they_listen_on_ports_of_their_own(brokers):
    shared = {
        "kafka_advertise": "balancer.example:1",
        "grpc_advertise": "balancer.example:2",
        "lease": 600_000,
    }
    first, second = await brokers.add(**shared), await brokers.add(**shared)
    assert first.listeners == second.listeners
    assert second.topology.current.members.keys() == {first.session, second.session}


async def test_draining_by_request_and_back(brokers):
    first, second = await brokers.add(), await brokers.add()
    await until(lambda: len(owned_shards(second)) == COORDINATOR_SHARDS // 2)
    await first.log.create_topic("t", 6)
    await first.cluster.drain(second.node_id, access=OPEN_ACCESS)
    await until(lambda: len(owned(first)) == 6)
    standing = {each.node_id: each for each in (await first.cluster.status()).brokers}
    assert (standing[2].is_draining, standing[2].partitions, standing[2].shards) == (True, 0, 0)
    await first.cluster.drain(second.node_id, undo=True, access=OPEN_ACCESS)
    await until(lambda: len(owned(second)) == 3)
    with pytest.raises(MillpondError, match="there is no broker 9"):
        await first.cluster.drain(9, access=OPEN_ACCESS)


# -- handing over ---------------------------------------------------------------------------------------------


async def test_a_refresh_does_not_take_back_shards_that_are_being_handed_over(brokers):
    first = await brokers.add()
    prepare_handover = first.groups.prepare_handover
    kept = []

    async def let_go_while_the_topology_changes(shards):
        await prepare_handover(shards)
        await first.log.create_topic("made-meanwhile")
        kept.extend(shard for shard in shards if first.owned_shards.epoch_of(shard) is not None)

    first.groups.prepare_handover = let_go_while_the_topology_changes
    second = await brokers.add()
    await until(lambda: len(owned_shards(second)) == COORDINATOR_SHARDS // 2)
    assert first.log.topics.knows("made-meanwhile")
    assert not kept


async def test_shards_that_could_not_be_handed_over_are_kept(brokers):
    first = await brokers.add()
    prepare_handover, refused = first.groups.prepare_handover, []

    async def refuse(shards):
        refused.append(shards)
        raise Unavailable

    first.groups.prepare_handover = refuse
    second = await brokers.add()
    await until(lambda: refused)
    with pytest.raises(Unavailable):
        await first.membership.balance()
    assert len(owned_shards(first)) == COORDINATOR_SHARDS
    first.groups.prepare_handover = prepare_handover
    await until(lambda: len(owned_shards(second)) == COORDINATOR_SHARDS // 2)


async def test_a_partition_that_was_handed_over_is_not_served_before_the_view_is_renewed(brokers):
    first = await brokers.add()
    await first.log.create_topic("t", 8)
    refresh, served = first.log.catalog_view.refresh, []

    async def look_first():
        owners = await first.log.read(topology.owners)
        served.extend(
            topic_partition
            for topic_partition, owner in owners.items()
            if owner.session != first.session and first.log.owns(topic_partition)
        )
        await refresh()

    first.log.catalog_view.refresh = look_first
    second = await brokers.add()
    await until(lambda: len(owned(second)) == 4)
    assert not served


async def test_settings_for_jobs_are_those_of_the_broker_that_joined_last(tmp_path):
    for settings, expected in (
        ({}, PublishedSettings()),
        (
            {"retention_grace": 7, "auto_create_topics": False, "default_partitions": 5},
            PublishedSettings(7, False, 5),
        ),
        ({"retention_grace": 0}, PublishedSettings(0)),
    ):
        async with running_broker(tmp_path, **settings) as broker:
            with broker.database.read() as tx:
                assert published_settings.read(tx) == expected
