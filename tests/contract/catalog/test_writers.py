"""Writers: sessions that commit, and the end of them."""

import pytest

from millpond.catalog import writers
from millpond.model.errors import WriterDead


class Clocked:
    """A transaction whose lease clock shows what the test says."""

    def __init__(self, tx, clock, now_ms):
        self.rows, self.each = tx.rows, tx.each
        self.lease_clock = lambda: (clock, now_ms)


def register(catalog, session, clock, now_ms, lease_ms, lane=0):
    def run(tx):
        tx = Clocked(tx, clock, now_ms)
        writers.register(tx, session, kind="broker", address="", lease_ms=lease_ms, lane=lane)

    catalog.write(run)


def bury_expired(catalog, clock, now_ms, caller="caller"):
    def run(tx):
        tx = Clocked(tx, clock, now_ms)
        return writers.mark_expired_brokers_dead(tx, writers.expired_brokers(tx, caller), 77)

    return catalog.write(run)


def take(catalog, session, number=1, token="t", lane=0):
    return catalog.write(writers.claim_commit_number, session, lane, number, token)


def test_a_writer_lives_while_it_renews_in_time(catalog):
    register(catalog, "s1", "boot", 1_000, lease_ms=500)
    catalog.write(lambda tx: writers.renew(Clocked(tx, "boot", 1_400), "s1", 500))
    assert bury_expired(catalog, "boot", 1_900) == []
    assert bury_expired(catalog, "boot", 1_901) == ["s1"]
    assert catalog.read(writers.dead_sessions) == [("s1", 77, False)]


def test_tools_and_brokers_are_judged_apart(catalog):
    register(catalog, "broker", "boot", 1_000, lease_ms=500)

    def register_tool(tx):
        writers.register(Clocked(tx, "boot", 1_000), "spark", kind="spark", address="", lease_ms=500)

    catalog.write(register_tool)
    assert bury_expired(catalog, "boot", 2_000) == ["broker"]
    assert catalog.write(lambda tx: writers.mark_expired_tools_dead(Clocked(tx, "boot", 2_000), "x", 78)) == [
        "spark"
    ]
    assert catalog.read(writers.dead_sessions) == [("broker", 77, False), ("spark", 78, False)]


def test_one_that_renews_meanwhile_is_not_buried(catalog):
    register(catalog, "s1", "boot", 1_000, lease_ms=500)

    def run(tx):
        found = writers.expired_brokers(Clocked(tx, "boot", 2_000), "caller")
        writers.renew(Clocked(tx, "boot", 2_000), "s1", 500)
        return found, writers.mark_expired_brokers_dead(Clocked(tx, "boot", 2_000), found, 77)

    assert catalog.write(run) == (["s1"], [])


def test_nobody_buries_itself_even_if_the_machine_slept_through_its_lease(catalog):
    register(catalog, "s1", "boot", 1_000, lease_ms=500)
    assert bury_expired(catalog, "boot", 10**9, caller="s1") == []
    assert bury_expired(catalog, "boot", 10**9, caller="s2") == ["s1"]


def test_a_lease_given_by_another_clock_has_expired(catalog):
    register(catalog, "before-reboot", "boot-1", 1_000, lease_ms=10**9)
    register(catalog, "after-reboot", "boot-2", 10, lease_ms=100)
    assert bury_expired(catalog, "boot-2", 50) == ["before-reboot"]


def test_renewing_moves_a_lease_to_the_clock_of_today(catalog):
    register(catalog, "s1", "boot-1", 1_000, lease_ms=100)
    catalog.write(lambda tx: writers.renew(Clocked(tx, "boot-2", 10), "s1", 100))
    assert bury_expired(catalog, "boot-2", 50) == []


def test_the_lease_clock_moves_forward_and_keeps_its_name(catalog):
    first, second = (catalog.read(lambda tx: tx.lease_clock()) for _ in range(2))
    assert first[0] == second[0]
    assert first[1] <= second[1] < first[1] + 60_000


def test_a_dead_writer_can_neither_renew_nor_commit(catalog):
    session = catalog.writer()
    catalog.write(writers.mark_dead, session, 5)
    with pytest.raises(WriterDead, match=session):
        catalog.write(writers.renew, session, 1000)
    with pytest.raises(WriterDead, match=session):
        take(catalog, session)
    with pytest.raises(WriterDead):
        catalog.committer(session).commit([lambda tx: "never"])


def test_a_writer_nobody_registered_cannot_commit(catalog):
    with pytest.raises(WriterDead):
        take(catalog, "nobody")


def test_burying_twice_keeps_the_first_date(catalog):
    session = catalog.writer()
    for now_ms in (5, 9):
        catalog.write(writers.mark_dead, session, now_ms)
    assert catalog.read(writers.dead_sessions) == [(session, 5, False)]


def test_a_session_dies_with_all_its_lanes(catalog):
    session = catalog.writer("s1")
    catalog.writer("s1", lane=1)
    catalog.write(writers.mark_dead, session, 5)
    for lane in (0, 1):
        with pytest.raises(WriterDead):
            take(catalog, session, lane=lane)
    assert catalog.read(writers.dead_sessions) == [(session, 5, False)]


def test_a_dead_session_cannot_open_a_new_lane(catalog):
    session = catalog.writer("s1")
    catalog.write(writers.mark_dead, session, 5)
    with pytest.raises(WriterDead):
        catalog.writer("s1", lane=1)


def test_lanes_of_a_session_count_for_themselves(catalog):
    session = catalog.writer("s1")
    catalog.writer("s1", lane=1)
    assert take(catalog, session, 1) is None
    assert take(catalog, session, 1, lane=1) is None


def test_the_holder_of_the_directory_buries_all_other_brokers_once_each(catalog):
    mine = catalog.writer("mine")
    catalog.writer("other")
    catalog.writer("other", lane=1)
    register_spark = {"kind": "spark", "address": "", "lease_ms": 1000}
    catalog.write(writers.register, "job", **register_spark)
    assert catalog.write(writers.mark_other_brokers_dead, mine, 5) == ["other"]
    assert catalog.write(writers.mark_other_brokers_dead, mine, 5) == []
    assert catalog.read(writers.dead_sessions) == [("other", 5, False)]


def test_only_the_dead_are_forgotten_and_they_stay_unable_to_commit(catalog):
    living, dead = catalog.writer("living"), catalog.writer("dead")
    catalog.write(writers.mark_dead, dead, 5)
    for session in (living, dead):
        catalog.write(writers.forget, session)
    assert catalog.read(writers.dead_sessions) == []
    assert take(catalog, living) is None
    with pytest.raises(WriterDead):
        take(catalog, dead)


def test_a_number_is_taken_once_and_in_order(catalog):
    session = catalog.writer()
    assert take(catalog, session, 1, "a") is None
    catalog.write(writers.store_result, session, 0, "first")
    assert take(catalog, session, 1, "a") == writers.LastCommit(1, "a", "first")
    assert take(catalog, session, 3, "b") == writers.LastCommit(1, "a", "first")
    assert take(catalog, session, 2, "b") is None


def test_a_commit_that_took_effect_before_its_writer_died_still_has_its_answer(catalog):
    session = catalog.writer()
    assert take(catalog, session, 1, "mine") is None
    catalog.write(writers.store_result, session, 0, "first")
    catalog.write(writers.mark_dead, session, 5)
    assert take(catalog, session, 1, "mine") == writers.LastCommit(1, "mine", "first")
    with pytest.raises(WriterDead):
        take(catalog, session, 1, "another")
    with pytest.raises(WriterDead):
        take(catalog, session, 2, "another")


def test_a_session_that_ended_in_order_is_told_from_one_that_died(catalog):
    first, second = catalog.writer("a"), catalog.writer("b")
    catalog.writer("a", lane=1)
    catalog.write(writers.mark_dead, first, 5, in_order=True)
    catalog.write(writers.mark_dead, second, 5)
    catalog.write(writers.mark_dead, second, 6, in_order=True)  # too late to say
    assert catalog.read(writers.dead_sessions) == [("a", 5, True), ("b", 5, False)]


def test_how_far_a_living_writers_wall_clock_was_ahead_is_told_by_lease_clock(catalog):
    def register_at(session, clock, wall_ms):
        catalog.write(
            lambda tx: writers.register(
                Clocked(tx, clock, 100), session, kind="broker", address="", lease_ms=10, wall_ms=wall_ms
            )
        )

    register_at("silent", "boot-1", None)
    assert catalog.read(writers.wall_clock_ahead, "boot-1") is None
    register_at("telling", "boot-1", 5_100)
    register_at("elsewhere", "boot-2", 9_100)
    assert catalog.read(writers.wall_clock_ahead, "boot-1") == 5_000
    catalog.write(writers.mark_dead, "telling", 5)
    assert catalog.read(writers.wall_clock_ahead, "boot-1") is None
