"""Subscriptions and what they are done with, as the catalog keeps it."""

import pytest

from millpond.catalog import partitions, subscriptions, topics
from millpond.catalog.subscriptions import FULL_CHUNK, SHARED_MEMBER, DeadLetter, Loaded, StateKey, StateSave
from millpond.model.errors import NotOwner, SubscriptionExists, UnknownSubscription
from millpond.model.subscriptions import ExhaustedAction, SubscriptionConfig, SubscriptionMode

CONFIG = SubscriptionConfig(
    mode=SubscriptionMode.KEY_SHARED, on_exhausted=ExhaustedAction.BLOCK, attempts_max=7
)
BITS = bytes([5]) + bytes(1023)


@pytest.fixture
def topic(catalog):
    return catalog.topic(count=2, owner="me")


@pytest.fixture
def subscription(catalog, topic):
    return create(catalog, topic)


def create(catalog, topic, name="billing", config=CONFIG, floors=None):
    floors = {0: 10, 1: 20} if floors is None else floors
    return catalog.write(
        subscriptions.create, topic.id, name, config, floors, topic=topic.name, now_ms=catalog.now
    )


def state_key(subscription, partition=0, member=SHARED_MEMBER):
    return StateKey(subscription.id, member, partition)


def take(catalog, subscription, partition=0, member=SHARED_MEMBER, owner="me"):
    place = state_key(subscription, partition, member)
    return catalog.write(subscriptions.take, subscription, place, owner=owner, topic="orders")


def load(catalog, subscription, partition=0, member=SHARED_MEMBER):
    return catalog.read(subscriptions.load, state_key(subscription, partition, member))


def save(subscription, epoch, floor=10, partition=0, **named):
    details = {"chunks": {}, "removed_chunks": (), "retries": {}, "removed_retries": (), "dead": (), **named}
    return StateSave(state_key(subscription, partition), subscription.topic_id, epoch, floor, **details)


def letter(subscription, offset, dead_at=5):
    return DeadLetter(state_key(subscription), offset, "orders.dead", dead_at, b"record")


def test_a_subscription_is_found_again_as_it_was_made(catalog, topic, subscription):
    found = catalog.read(subscriptions.find, topic.id, "billing", topic="orders")
    assert found == subscription
    assert found.config == CONFIG
    assert catalog.read(subscriptions.of_topic, topic.id) == [found]
    assert catalog.read(subscriptions.all_subscriptions) == [found]
    assert catalog.read(subscriptions.floors, found.id) == {("", 0): 10, ("", 1): 20}


def test_a_subscription_belongs_to_its_share_group_when_it_is_altered_too(catalog, topic):
    made = catalog.write(
        subscriptions.create, topic.id, "share.g", CONFIG, {0: 10}, topic="orders", now_ms=1, share_group="g"
    )
    assert made.share_group == "g"
    catalog.write(subscriptions.alter, made, CONFIG)
    found = catalog.read(subscriptions.find, topic.id, "share.g", topic="orders")
    assert (found.share_group, found.config) == ("g", CONFIG)


def test_a_name_is_taken_once_for_each_topic(catalog, topic, subscription):
    with pytest.raises(SubscriptionExists, match="'orders' already has a subscription 'billing'"):
        create(catalog, topic)
    create(catalog, catalog.topic("other"), floors={0: 0})
    with pytest.raises(UnknownSubscription, match="'orders' has no subscription 'shipping'"):
        catalog.read(subscriptions.find, topic.id, "shipping", topic="orders")


def test_whoever_takes_a_partition_gets_the_next_epoch_and_what_is_there(catalog, subscription):
    assert take(catalog, subscription) == 1
    assert load(catalog, subscription) == Loaded(1, 10, {}, {})
    assert take(catalog, subscription) == 2
    assert take(catalog, subscription, 1) == 1


def test_only_the_owner_of_a_partition_may_take_it(catalog, subscription):
    with pytest.raises(NotOwner):
        take(catalog, subscription, owner="another")


def test_what_is_saved_is_loaded_and_saving_it_again_changes_nothing(catalog, subscription):
    epoch = take(catalog, subscription)
    first = save(
        subscription, epoch, 12, chunks={0: BITS, 3: FULL_CHUNK}, retries={14: (2, 500, ("bad", "“worse”"))}
    )
    for _ in range(2):
        assert catalog.write(subscriptions.save, [first]) == [True]
        assert load(catalog, subscription) == Loaded(
            1, 12, {0: BITS, 3: FULL_CHUNK}, {14: (2, 500, ("bad", "“worse”"))}
        )
    second = save(
        subscription, epoch, 9000, removed_chunks=(0,), removed_retries=(14,), retries={15: (1, 0, ())}
    )
    assert catalog.write(subscriptions.save, [second]) == [True]
    assert load(catalog, subscription) == Loaded(1, 9000, {3: FULL_CHUNK}, {15: (1, 0, ())})


def test_later_reasons_replace_earlier_ones(catalog, subscription):
    epoch = take(catalog, subscription)
    for reasons in (("bad",), ("bad", 'a "quoted" \\ one'), ()):
        failed = save(subscription, epoch, retries={14: (len(reasons), 5, reasons)})
        assert catalog.write(subscriptions.save, [failed]) == [True]
        assert load(catalog, subscription).retries == {14: (len(reasons), 5, reasons)}


def test_the_first_retries_of_each_partition_are_listed(catalog, topic, subscription):
    for partition, offsets in ((0, (14, 12, 13)), (1, (25,))):
        retries = {offset: (1, 5, (f"reason {offset}",)) for offset in offsets}
        epoch = take(catalog, subscription, partition)
        catalog.write(subscriptions.save, [save(subscription, epoch, partition=partition, retries=retries)])
    another = create(catalog, topic, "shipping")
    epoch = take(catalog, another)
    catalog.write(subscriptions.save, [save(another, epoch, retries={11: (9, 9, ())})])
    assert catalog.read(subscriptions.first_retries, subscription.id, 2) == {
        ("", 0): {12: (1, 5, ("reason 12",)), 13: (1, 5, ("reason 13",))},
        ("", 1): {25: (1, 5, ("reason 25",))},
    }


def test_a_former_dispatcher_saves_nothing_and_its_neighbours_are_saved(catalog, subscription):
    old, other = take(catalog, subscription), take(catalog, subscription, 1)
    take(catalog, subscription)
    stale = save(
        subscription, old, 99, chunks={0: BITS}, retries={14: (2, 5, ())}, dead=[letter(subscription, 11)]
    )
    fresh = save(subscription, other, 25, partition=1)
    assert catalog.write(subscriptions.save, [stale, fresh]) == [False, True]
    assert load(catalog, subscription) == Loaded(2, 10, {}, {})
    assert load(catalog, subscription, 1).floor == 25
    assert catalog.read(subscriptions.dead_letters, 10) == []


def test_members_begin_where_the_subscription_began_and_go_their_own_ways(catalog, subscription):
    epoch = take(catalog, subscription, member="anna")
    anna = StateSave(state_key(subscription, 0, "anna"), subscription.topic_id, epoch, 17, {}, (), {}, (), ())
    assert catalog.write(subscriptions.save, [anna]) == [True]
    take(catalog, subscription, member="bert")
    assert load(catalog, subscription, member="anna").floor == 17
    assert load(catalog, subscription, member="bert").floor == 10


def test_a_partition_that_was_added_later_begins_at_its_start(catalog, topic, subscription):
    catalog.write(topics.add_partitions, "orders", 3, owner="me")
    assert take(catalog, subscription, 2) == 1
    assert load(catalog, subscription, 2).floor == 0


def test_a_reset_fences_whoever_was_at_work_and_forgets_what_was_done(catalog, subscription):
    epoch = take(catalog, subscription)
    catalog.write(
        subscriptions.save, [save(subscription, epoch, 12, chunks={0: BITS}, retries={14: (1, 0, ("bad",))})]
    )
    catalog.write(subscriptions.reset, subscription, {0: 3, 1: 4}, ["anna"])
    assert catalog.write(subscriptions.save, [save(subscription, epoch, 30)]) == [False]
    assert load(catalog, subscription) == Loaded(2, 3, {}, {})
    assert load(catalog, subscription, member="anna").floor == 3
    assert load(catalog, subscription, 1).floor == 4
    found = catalog.read(subscriptions.find, subscription.topic_id, "billing", topic="orders")
    assert found.version == subscription.version + 1


def test_an_altered_config_is_another_version(catalog, subscription):
    altered = SubscriptionConfig(mode=SubscriptionMode.KEY_SHARED, ack_timeout_ms=5_000)
    catalog.write(subscriptions.alter, subscription, altered)
    found = catalog.read(subscriptions.find, subscription.topic_id, "billing", topic="orders")
    assert (found.config, found.version) == (altered, subscription.version + 1)


def test_a_deleted_subscription_is_gone_but_not_its_dead_letters(catalog, subscription):
    epoch = take(catalog, subscription)
    kept = letter(subscription, 11)
    everything = save(subscription, epoch, 12, chunks={0: BITS}, retries={14: (1, 0, ("bad",))}, dead=[kept])
    catalog.write(subscriptions.save, [everything])
    catalog.write(subscriptions.delete, subscription)
    for table in ("subscription_state", "subscription_chunks", "subscription_retries"):
        assert catalog.rows(f"SELECT * FROM {table}") == []
    assert catalog.read(subscriptions.dead_letters, 10) == [kept]
    with pytest.raises(UnknownSubscription):
        take(catalog, subscription)
    with pytest.raises(UnknownSubscription):
        catalog.write(subscriptions.delete, subscription)


def test_subscriptions_go_with_their_topic(catalog, topic, subscription):
    epoch = take(catalog, subscription)
    catalog.write(
        subscriptions.save, [save(subscription, epoch, 12, chunks={0: BITS}, retries={14: (1, 0, ("bad",))})]
    )
    catalog.write(topics.delete, "orders", now_ms=catalog.now)
    assert catalog.read(subscriptions.all_subscriptions) == []
    assert catalog.rows("SELECT * FROM subscription_chunks") == []
    assert catalog.write(subscriptions.save, [save(subscription, epoch, 30)]) == [False]


def test_dead_letters_come_in_the_order_of_their_messages_and_go_once(catalog, subscription):
    epoch = take(catalog, subscription)
    letters = [letter(subscription, 12, dead_at=9), letter(subscription, 11, dead_at=7)]
    for _ in range(2):  # the answer to the first COMMIT was lost
        catalog.write(subscriptions.save, [save(subscription, epoch, 13, dead=letters)])
    assert catalog.read(subscriptions.dead_letters, 10) == [letters[1], letters[0]]
    assert catalog.read(subscriptions.dead_letters, 1) == [letters[1]]
    assert catalog.read(subscriptions.dead_letters, 10, letters[1]) == [letters[0]]
    assert catalog.read(subscriptions.dead_letters, 10, letters[0]) == []
    assert catalog.read(subscriptions.dead_letters_waiting, subscription.id) == 2
    assert catalog.write(subscriptions.remove_dead_letters, letters) == 2
    assert catalog.write(subscriptions.remove_dead_letters, letters) == 0


def test_a_redrive_remembers_how_far_it_came(catalog, topic, subscription):
    redriven, topic_partition = (
        (subscriptions.redriven, subscription.id, topic.id),
        catalog.topic_partition(topic),
    )
    assert catalog.read(*redriven) == {}
    for before, after in ((0, 5), (5, 9)):
        assert catalog.write(subscriptions.set_redriven, subscription.id, topic_partition, before, after)
        assert not catalog.write(subscriptions.set_redriven, subscription.id, topic_partition, before, after)
    assert catalog.read(*redriven) == {0: 9}
    assert catalog.read(subscriptions.redriven, subscription.id, catalog.topic("anew").id) == {}


def test_settled_offsets_above_the_floor_are_counted(catalog, subscription):
    epoch = take(catalog, subscription)
    settled = bytes([0, 0b1111_0000]) + bytes(1022)  # offsets 12 to 15, of which two lie below the floor
    stored = save(subscription, epoch, 14, chunks={0: settled, 2: FULL_CHUNK})
    catalog.write(subscriptions.save, [stored])
    assert catalog.read(subscriptions.settled_above_floors, subscription.id) == {("", 0): 2 + 8192}


def test_a_partition_that_changed_hands_is_taken_by_its_new_owner(catalog, topic, subscription):
    old = take(catalog, subscription)
    catalog.write(partitions.claim, catalog.topic_partition(topic), "another")
    with pytest.raises(NotOwner):
        take(catalog, subscription)
    assert take(catalog, subscription, owner="another") == old + 1


def test_the_subscriptions_of_a_share_group_are_found_in_all_topics(catalog, topic):
    other = catalog.topic("other")
    for each in (topic, other):
        for name, group in (("share.g", "g"), ("share.h", "h"), ("mine", "")):
            catalog.write(
                subscriptions.create,
                each.id,
                name,
                CONFIG,
                {0: 0},
                topic=each.name,
                now_ms=catalog.now,
                share_group=group,
            )
    found = catalog.read(subscriptions.of_share_group, "g", "share.g")
    assert {each.topic_id for each in found} == {topic.id, other.id}
    assert {each.share_group for each in found} == {"g"}
    assert catalog.read(subscriptions.of_share_group, "", "share.g") == []
    assert catalog.read(subscriptions.of_share_group, "x", "share.g") == []
