"""Groups whose coordinator changes while clients wait for it."""

import asyncio

import pytest
from tests.shards import owned_shards
from tests.unit.cluster.conftest import HANG_S, until

from millpond.catalog import topology
from millpond.catalog.coordinators import shard_of
from millpond.catalog.schema import COORDINATOR_SHARDS
from millpond.groups import JoinRequest, Protocol
from millpond.groups.classic.snapshot import Snapshot
from millpond.model.errors import NotCoordinator

JOIN = JoinRequest("", "c", "", 6_000, 60_000, "consumer", [Protocol("range", b"")], require_known_id=False)


async def test_a_group_that_is_read_while_its_shard_is_handed_over_is_not_kept(brokers):
    first = await brokers.add()
    groups, shard = first.groups, shard_of("g")
    await groups._store.save(groups._store.ownership("g"), Snapshot(3, "consumer"))
    load, began, may_end = groups._store.load, asyncio.Event(), asyncio.Event()

    async def slow(group_id):
        began.set()
        await may_end.wait()
        return await load(group_id)

    groups._store.load = slow
    asked = asyncio.create_task(groups.join("g", JOIN))
    await began.wait()
    await first.owned_shards.prepare_handover([shard])
    await groups.prepare_handover([shard])
    may_end.set()
    with pytest.raises(NotCoordinator):
        async with asyncio.timeout(HANG_S):
            await asked
    assert "g" not in groups._loaded_groups


async def test_members_are_refused_when_their_shard_has_another_owner(brokers):
    """As after a hand-over whose outcome was unknown: the catalog shows it later."""
    first = await brokers.add(group_initial_rebalance_delay=600_000)
    second = await brokers.add()
    await until(lambda: len(owned_shards(second)) == COORDINATOR_SHARDS // 2)
    group = next(f"g{number}" for number in range(100) if first.groups._store.coordinates(f"g{number}"))
    waiting = asyncio.create_task(first.groups.join(group, JOIN))
    await until(lambda: group in first.groups._loaded_groups)
    shard = shard_of(group)

    def hand_over(tx):
        topology.bump_version(tx)
        handovers = {shard: (first.owned_shards.epoch_of(shard), second.session)}
        return topology.hand_over_shards(tx, first.session, handovers)

    assert await first.log.write(hand_over) == 1
    await first.log.refresh()
    with pytest.raises(NotCoordinator):
        async with asyncio.timeout(HANG_S):
            await waiting
