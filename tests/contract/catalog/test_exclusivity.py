"""One consumer of an exclusive subscription, whichever broker it attaches at."""

import pytest

from millpond.catalog import exclusive_consumers, subscriptions, topics, writers
from millpond.model.errors import SubscriptionBusy, UnknownSubscription
from millpond.model.ids import Session
from millpond.model.subscriptions import config_from

NOW = 1_000_000
A, B = Session("a"), Session("b")


@pytest.fixture
def subscription(catalog):
    for session in (A, B):
        catalog.write(
            lambda tx, session=session: writers.register(
                tx, session, kind="broker", address="", lease_ms=10**9
            )
        )
    topic = catalog.write(lambda tx: topics.create(tx, "t", 2, {}, now_ms=NOW))
    config = config_from({"mode": "exclusive"})
    catalog.write(
        lambda tx: subscriptions.create(tx, topic.id, "s", config, {0: 0, 1: 0}, topic="t", now_ms=NOW)
    )
    return catalog.read(lambda tx: subscriptions.find(tx, topic.id, "s", topic="t"))


def hold(catalog, subscription, session, consumer, token="1"):
    catalog.write(lambda tx: exclusive_consumers.hold(tx, subscription, session, consumer, token))


def release(catalog, subscription, session, token="1"):
    catalog.write(lambda tx: exclusive_consumers.release(tx, subscription, session, token))


def test_one_consumer_at_all_brokers_and_another_at_none(catalog, subscription):
    hold(catalog, subscription, A, "anna")
    hold(catalog, subscription, B, "anna")
    for session in (A, B):
        with pytest.raises(SubscriptionBusy, match="'anna' has it"):
            hold(catalog, subscription, session, "bert")
    release(catalog, subscription, A)
    with pytest.raises(SubscriptionBusy):
        hold(catalog, subscription, A, "bert")
    release(catalog, subscription, B)
    hold(catalog, subscription, A, "bert")


def test_a_release_that_comes_late_does_not_end_the_next_one(catalog, subscription):
    hold(catalog, subscription, A, "anna", "1")
    hold(catalog, subscription, A, "anna", "2")
    release(catalog, subscription, A, "1")
    with pytest.raises(SubscriptionBusy):
        hold(catalog, subscription, B, "bert")


def test_what_a_broker_has_left_behind_itself_does_not_keep_it_from_letting_the_next_one_in(
    catalog, subscription
):
    hold(catalog, subscription, A, "anna", "1")
    hold(catalog, subscription, A, "bert", "2")
    release(catalog, subscription, A, "1")
    with pytest.raises(SubscriptionBusy, match="'bert' has it"):
        hold(catalog, subscription, B, "anna")


def test_what_a_dead_broker_has_noted_does_not_count(catalog, subscription):
    hold(catalog, subscription, A, "anna")
    catalog.write(lambda tx: writers.mark_dead(tx, A, NOW))
    hold(catalog, subscription, B, "bert")
    assert catalog.read(lambda tx: tx.rows("SELECT consumer FROM exclusive_consumers")) == [("bert",)]


def test_it_goes_with_the_subscription(catalog, subscription):
    hold(catalog, subscription, A, "anna")
    catalog.write(lambda tx: subscriptions.delete(tx, subscription))
    assert catalog.read(lambda tx: tx.rows("SELECT consumer FROM exclusive_consumers")) == []
    with pytest.raises(UnknownSubscription):
        hold(catalog, subscription, A, "anna")
