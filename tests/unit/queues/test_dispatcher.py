"""What the histories of `tests/queues` do not reach: balance, limits, config, and that nothing is scanned."""

import pytest

from millpond.model.subscriptions import ExhaustedAction, SubscriptionConfig, SubscriptionMode
from millpond.queues import attached_consumers, schedule
from millpond.queues import dispatcher as module
from millpond.queues.dispatcher import Dispatcher
from millpond.queues.dispatcher_results import AckResult, Retry
from millpond.queues.dispatcher_state import NEVER, LogEntry
from millpond.queues.key_assignment import key_hash
from millpond.queues.settled_offsets import SettledOffsets

KEYS = [key_hash(b"key-%d" % number) for number in range(400)]
TIMEOUT_MS = 10_000


def made(mode=SubscriptionMode.KEY_SHARED, *, tracked_max=module.TRACKED_MAX, **config):
    return Dispatcher(
        SubscriptionConfig(mode=mode, ack_timeout_ms=TIMEOUT_MS, **config), tracked_max=tracked_max
    )


def show(machine, keys):
    """Messages with these keys, from the frontier on."""
    entries = [LogEntry(machine.frontier + number, key) for number, key in enumerate(keys)]
    machine.index(entries, machine.frontier + len(entries))


def owners(machine):
    return {key: machine._assignment.owner(key) for key in KEYS}


def store(machine):
    machine.begin_commit()
    machine.committed()


def work_off(machine):
    """Until nobody takes anything."""
    while deliveries := machine.dispatch(0):
        for delivery in deliveries:
            machine.ack(delivery.offset, 1, delivery.token)
        store(machine)


# -- balance ------------------------------------------------------------------------------------------------------


def hot_and_idle():
    """Two consumers with about as many keys; one of them takes nothing."""
    machine = made()
    for name in ("hot", "idle"):
        machine.consumers.attach(name)
    machine.consumers.grant("idle", 1_000)
    show(machine, KEYS)
    for delivery in machine.dispatch(0):
        machine.ack(delivery.offset, 1, delivery.token)
    store(machine)
    return machine


def test_a_hot_consumer_loses_some_of_its_keys_and_nobody_else_any():
    machine = hot_and_idle()
    before = owners(machine)
    assert machine.consumers.balance()
    moved = {(before[key], owner) for key, owner in owners(machine).items() if owner != before[key]}
    assert moved == {("hot", "idle")}
    changed = sum(before[key] != owner for key, owner in owners(machine).items())
    assert changed < 0.2 * len(KEYS), "few keys at a time"


def test_it_goes_on_until_nobody_is_hot():
    machine = hot_and_idle()
    while machine.consumers.balance():
        pass
    loads = {each.name: len(each.queue) for each in machine.consumers}
    assert (
        loads["idle"]
        < loads["hot"]
        <= attached_consumers.HOT_FACTOR * loads["idle"] + attached_consumers.HOT_SLACK
    )


def test_even_a_consumer_that_takes_nothing_keeps_some_keys():
    machine = hot_and_idle()
    for _ in range(30):
        machine.consumers.balance()
        show(machine, KEYS)
        machine.consumers.grant("idle", 10_000)
        work_off(machine)
    hot = next(each for each in machine.consumers if each.name == "hot")
    assert hot.weight == attached_consumers.WEIGHT_MIN
    assert 0 < sum(owner == "hot" for owner in owners(machine).values()) < 0.2 * len(KEYS)


def test_a_consumer_that_is_hot_no_more_gets_its_keys_back():
    machine = hot_and_idle()
    before = owners(machine)
    machine.consumers.balance()
    machine.consumers.grant("hot", 1_000)
    machine.consumers.grant("idle", 1_000)
    work_off(machine)
    show(machine, [next(key for key in KEYS if owners(machine)[key] == "idle")] * 3)
    for _ in range(20):
        machine.consumers.balance()
    assert owners(machine) == before


def test_consumers_that_are_even_are_left_alone():
    machine = made()
    for name in ("anna", "bert"):
        machine.consumers.attach(name)
    show(machine, KEYS)
    assert not machine.consumers.balance()


@pytest.mark.parametrize(
    "mode", [SubscriptionMode.SHARED, SubscriptionMode.FAILOVER, SubscriptionMode.EXCLUSIVE]
)
def test_there_is_nothing_to_balance_without_keys(mode):
    machine = made(mode)
    for name in ("anna", "bert"):
        machine.consumers.attach(name)
    assert not machine.consumers.balance()


# -- reading on ---------------------------------------------------------------------------------------------------


def test_nothing_is_read_for_a_consumer_that_only_stands_by():
    machine = made(SubscriptionMode.FAILOVER)
    machine.consumers.attach("first")
    machine.consumers.attach("second")
    machine.consumers.grant("second", 100)
    assert not machine.wants_more
    machine.consumers.grant("first", 1)
    assert machine.wants_more


@pytest.mark.parametrize("limit", ["leases", "tracked", "span"])
def test_reading_on_has_limits(limit, monkeypatch):
    machine = made(
        SubscriptionMode.SHARED,
        leases_max=5 if limit == "leases" else 50,
        tracked_max=5 if limit == "tracked" else 50,
    )
    if limit == "span":
        monkeypatch.setattr(module, "SPAN_MAX", 5)
    machine.consumers.attach("anna")
    machine.consumers.grant("anna", 100)
    assert machine.wants_more
    assert not machine.is_full
    show(machine, [None] * 5)
    machine.dispatch(0)
    assert not machine.wants_more
    assert machine.is_full is (limit != "leases")


def test_a_key_that_does_not_move_is_tracked_in_part_only():
    machine = made()
    machine.consumers.attach("anna")
    show(machine, KEYS[:1] * 10 * schedule.PER_KEY_MAX)
    assert machine.tracked == schedule.PER_KEY_MAX
    assert machine.schedule.retrack_from is None


def test_once_it_is_crowded_even_less_is_tracked_of_a_key():
    machine = made(tracked_max=1_000)
    machine.consumers.attach("anna")
    show(machine, KEYS[:1] * 600)
    show(machine, KEYS[1:2] * 600)
    assert machine.tracked == 500 + schedule.PER_KEY_WHEN_CROWDED


def test_what_is_settled_is_not_recalled(monkeypatch):
    """As it may be where several of a key are on their way: later ones are settled, and another takes over."""
    monkeypatch.setattr(schedule, "PER_KEY_MAX", 1)
    settled = SettledOffsets()
    settled.apply(settled.plan([2, 3]))
    machine = Dispatcher(
        SubscriptionConfig(mode=SubscriptionMode.KEY_SHARED, key_window=5), chunks=settled.chunks
    )
    machine.consumers.attach("anna")
    machine.consumers.grant("anna", 9)
    entries = [LogEntry(offset, KEYS[0]) for offset in range(5)]
    machine.index(entries, 5)
    delivered = []
    while deliveries := machine.dispatch(0):
        delivered += [each.offset for each in deliveries]
        while (start := machine.schedule.retrack_from) is not None:
            machine.retrack(entries[start:], start, 5)
    assert delivered == [0, 1, 4]


# -- time ---------------------------------------------------------------------------------------------------------


def test_without_anything_to_wait_for_there_is_no_next_event():
    machine = made()
    machine.consumers.attach("anna")
    machine.consumers.grant("anna", 5)
    assert machine.next_event() is None


def test_a_blocked_message_is_no_event():
    machine = made(attempts_max=1, on_exhausted=ExhaustedAction.BLOCK)
    machine.consumers.attach("anna")
    machine.consumers.grant("anna", 5)
    show(machine, KEYS[:1])
    [delivery] = machine.dispatch(0)
    machine.nack(delivery.offset, 1, delivery.token, 0)
    assert machine.next_event() is None


def test_a_consumer_that_never_had_room_is_an_event():
    """Nothing else would ever wake the shell: nothing is leased and nothing delayed."""
    machine = made()
    machine.consumers.attach("anna")
    show(machine, KEYS[:1])
    machine.expire(500)
    assert machine.next_event() == 500 + TIMEOUT_MS
    machine.expire(500 + TIMEOUT_MS)
    assert next(iter(machine.consumers)).suspended
    assert machine.next_event() is None


def test_time_does_not_go_back():
    machine = made()
    machine.consumers.attach("anna")
    machine.consumers.grant("anna", 5)
    show(machine, KEYS[:1])
    [delivery] = machine.dispatch(1_000)
    machine.extend(delivery.offset, 1, delivery.token, 0, 100)
    machine.expire(1_050)
    assert machine.leased == 1


# -- config -------------------------------------------------------------------------------------------------------


def test_a_config_that_is_altered_holds_at_once():
    machine = made(leases_max=1, key_window=1)
    machine.consumers.attach("anna")
    machine.consumers.grant("anna", 10)
    show(machine, [KEYS[0], KEYS[0], KEYS[1]])
    assert [each.offset for each in machine.dispatch(0)] == [0]
    machine.config = SubscriptionConfig(mode=SubscriptionMode.KEY_SHARED, leases_max=10, key_window=2)
    assert [each.offset for each in machine.dispatch(0)] == [1, 2]


# -- a former owner's state ---------------------------------------------------------------------------------------


def test_what_is_blocked_can_be_let_go_before_it_was_read():
    machine = Dispatcher(
        SubscriptionConfig(on_exhausted=ExhaustedAction.BLOCK, attempts_max=2),
        retries={3: Retry(2, NEVER), 4: Retry(1, 50)},
    )
    assert machine.unblock(4) == 0
    assert machine.unblock() == 1
    assert list(machine.begin_commit().forgotten) == [3]


def test_retries_of_what_has_expired_are_forgotten():
    machine = Dispatcher(
        SubscriptionConfig(), retries={number: Retry(1, 0) for number in (3, 7, 9)}, log_start=8
    )
    assert sorted(machine.begin_commit().forgotten) == [3, 7]


# -- nothing is scanned -------------------------------------------------------------------------------------------


class Counted(dict):
    """A dictionary that counts what is looked up and refuses to be gone through."""

    looked_up = 0

    def get(self, key, default=None):
        self.looked_up += 1
        return super().get(key, default)

    def __getitem__(self, key):
        self.looked_up += 1
        return super().__getitem__(key)

    def refuse(self):
        raise AssertionError("it is gone through")

    __iter__ = values = items = keys = refuse


def lookups(machine, mode):
    """Of one message's way through a dispatcher that has many."""
    messages = machine._messages = machine.schedule._messages = Counted(machine._messages)
    keys = machine.schedule.keys = Counted(machine.schedule.keys)
    machine.consumers.grant("anna", 1)
    [delivery] = machine.dispatch(0)
    assert machine.ack(delivery.offset, 1, delivery.token) is AckResult.OK
    store(machine)
    machine.expire(1)
    assert machine.schedule.retrack_from is None
    assert not machine.wants_more
    machine.next_event()
    return messages.looked_up + keys.looked_up


@pytest.mark.parametrize(
    "mode", [SubscriptionMode.SHARED, SubscriptionMode.KEY_SHARED, SubscriptionMode.FAILOVER]
)
def test_a_message_costs_the_same_however_many_there_are(mode):
    def loaded(count):
        machine = made(mode)
        machine.consumers.attach("anna")
        keys = {SubscriptionMode.SHARED: lambda _: None, SubscriptionMode.FAILOVER: lambda _: 0}.get(
            mode, lambda n: KEYS[n % 400] + n
        )
        show(machine, map(keys, range(count)))
        return machine

    assert lookups(loaded(5_000), mode) == lookups(loaded(50), mode) <= 20
