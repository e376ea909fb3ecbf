"""What has come and nobody has taken: what is dropped, what is held, and that room is given back once for each."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.client.deliveries import NoLink, delivery

from millpond.client.inbox import DeliveryOrder, Inbox
from millpond.model.errors import UnknownSubscription


class Scene:
    def __init__(self, order=DeliveryOrder.NONE):
        self.now = 0.0
        self.link = NoLink()
        self.inbox = Inbox(lambda each: each.link.return_credit(each), lambda: self.now)
        self.inbox.order = order

    def arrive(self, *numbers, key=None, partition=0, epoch=1, link=None):
        came = [delivery(link or self.link, each, key, partition=partition, epoch=epoch) for each in numbers]
        self.inbox.arrive(partition, epoch, came)
        return came

    def take_all(self):
        taken = []
        while (found := self.inbox.take()) is not None:
            taken.append(found.number)
        return taken


def test_deliveries_are_taken_in_the_order_they_came_and_make_room():
    scene = Scene()
    scene.arrive(1, 2, 3)
    assert scene.link.given_back == []
    assert scene.take_all() == [1, 2, 3] == scene.link.given_back


def test_what_was_revoked_cannot_be_taken_and_makes_room():
    scene = Scene()
    came = scene.arrive(1, 2, 3)
    scene.inbox.revoke([came[1].ack_id, b"of somebody else"])
    assert scene.link.given_back == [2]
    assert scene.take_all() == [1, 3]
    assert sorted(scene.link.given_back) == [1, 2, 3]


def test_a_revoked_delivery_that_a_worker_has_not_begun_is_not_claimed():
    scene = Scene()
    scene.arrive(1, 2)
    first, second = scene.inbox.next_unclaimed(), scene.inbox.next_unclaimed()
    scene.inbox.revoke([second.ack_id])
    assert scene.inbox.claim(first)
    assert not scene.inbox.claim(second)
    assert not scene.inbox.claim(first), "it can be taken once"


def test_a_higher_epoch_drops_what_came_of_lower_ones_in_that_partition_only():
    scene = Scene()
    scene.arrive(1, 2)
    scene.arrive(7, partition=1)
    scene.arrive(1, epoch=2)
    assert [(each, scene.inbox.take().number) for each in range(2)] == [(0, 7), (1, 1)]
    scene.arrive(3, epoch=1)
    assert scene.inbox.take() is None, "a former owner is not listened to"
    assert sorted(scene.link.given_back) == [1, 1, 2, 3, 7]


def test_what_a_lost_link_or_partition_delivered_is_dropped():
    scene, other = Scene(), NoLink()
    scene.arrive(1)
    scene.arrive(2, partition=1)
    scene.arrive(3, partition=2, link=other)
    scene.inbox.lose(scene.link, 1)
    assert scene.link.given_back == [2]
    scene.inbox.lose(scene.link)
    assert scene.take_all() == [3]


def test_what_lay_here_until_its_time_was_up_is_not_given_out():
    scene = Scene()
    scene.arrive(1, 2)
    scene.now = 100.0
    assert scene.take_all() == []
    assert scene.link.given_back == [1, 2]


@pytest.mark.parametrize(
    ("order", "held"),
    [
        (DeliveryOrder.KEY, {"same"}),
        (DeliveryOrder.PARTITION, {"same", "other"}),
        (DeliveryOrder.NONE, set()),
    ],
)
def test_what_follows_a_refused_message_waits_for_the_broker(order, held):
    scene = Scene(order)
    first, *_ = scene.arrive(1, 2, key=b"k")
    scene.arrive(3, key=b"other")
    scene.arrive(4, partition=1, key=b"k")
    assert scene.inbox.take() is first
    scene.inbox.hold_behind(first)
    scene.arrive(5, key=b"k")
    expected = {2: "same", 3: "other", 4: "elsewhere", 5: "same"}
    assert scene.take_all() == [number for number, where in expected.items() if where not in held]
    scene.inbox.release_behind(first)
    assert scene.take_all() == [number for number, where in expected.items() if where in held]


def test_what_the_broker_revoked_meanwhile_does_not_come_back():
    scene = Scene(DeliveryOrder.KEY)
    first, second, third = scene.arrive(1, 2, 3, key=b"k")
    assert scene.inbox.take() is first
    scene.inbox.hold_behind(first)
    assert scene.take_all() == []
    scene.inbox.revoke([second.ack_id, third.ack_id])
    scene.inbox.arrive(0, 1, [delivery(scene.link, 1, b"k", epoch=2)])
    assert scene.take_all() == [1], "the refused one itself comes again"
    scene.inbox.release_behind(first)
    assert scene.take_all() == []


def test_what_was_held_is_not_overtaken_by_what_a_worker_has_looked_at():
    scene = Scene(DeliveryOrder.KEY)
    first, *_ = scene.arrive(1, 2, 3, key=b"k")
    assert scene.inbox.take() is first
    looked = [scene.inbox.next_unclaimed(), scene.inbox.next_unclaimed()]
    scene.inbox.hold_behind(first)
    assert not scene.inbox.claim(looked[0])
    scene.inbox.release_behind(first)
    again = scene.inbox.next_unclaimed()
    assert again is looked[0]
    assert not scene.inbox.claim(looked[1]), "it stands in the worker's lane before the one it must follow"
    assert scene.inbox.claim(again)
    assert scene.take_all() == [3]


def test_those_that_were_let_go_are_held_again_by_another_refusal():
    scene = Scene(DeliveryOrder.KEY)
    first, second, _ = scene.arrive(1, 2, 3, key=b"k")
    assert (scene.inbox.take(), scene.inbox.take()) == (first, second)
    scene.inbox.hold_behind(first)
    assert scene.take_all() == []
    scene.inbox.hold_behind(second)
    scene.inbox.release_behind(first)
    assert scene.take_all() == [], "the second is not answered yet"
    scene.inbox.release_behind(second)
    assert scene.take_all() == [3]


def test_closing_lets_go_of_everything_and_everybody():
    scene = Scene()
    scene.arrive(1, 2)
    waiting = threading.Thread(target=lambda: [scene.inbox.take_with_timeout(None) for _ in range(3)])
    waiting.start()
    scene.inbox.close(UnknownSubscription(topic="t", subscription="s"))
    waiting.join(timeout=30)
    assert not waiting.is_alive()
    scene.arrive(3)
    assert scene.take_all() == []
    assert 3 not in scene.link.given_back, "no broker is asked for more"
    assert isinstance(scene.inbox.failure, UnknownSubscription)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["arrive", "take", "revoke", "refuse", "release", "lose", "look"]), st.integers(0, 3)
    ),
    max_size=60,
)


@given(STEPS, st.sampled_from(list(DeliveryOrder)))
def test_room_is_given_back_exactly_once_for_each_whatever_happens(steps, order):
    scene = Scene(order)
    came, taken, looked = [], [], []
    for number, (step, which) in enumerate(steps, 1):
        match step:
            case "arrive":
                came += scene.arrive(number, key=b"%d" % which, partition=which % 2)
            case "take":
                taken += [found] if (found := scene.inbox.take()) is not None else []
            case "look":
                looked += [found] if (found := scene.inbox.next_unclaimed()) is not None else []
                for each in looked:
                    scene.inbox.claim(each)
            case "revoke" if came:
                scene.inbox.revoke([came[which % len(came)].ack_id])
            case "refuse" if taken:
                scene.inbox.hold_behind(taken[which % len(taken)])
            case "release" if taken:
                scene.inbox.release_behind(taken[which % len(taken)])
            case "lose":
                scene.inbox.lose(scene.link, which % 2)
    scene.inbox.lose(scene.link)
    assert sorted(scene.link.given_back) == [each.number for each in came]


def test_releases_wake_a_waiter_when_earlier_deliveries_are_taken():
    released, link = [], NoLink()
    inbox = Inbox(lambda _: None, lambda: 0.0, lambda: released.append(True))
    inbox.order = DeliveryOrder.KEY
    inbox.arrive(0, 1, [delivery(link, number, b"k") for number in (1, 2, 3)])
    refused = inbox.take()
    inbox.hold_behind(refused)
    assert not inbox.claim(inbox.next_unclaimed()), "it is held, whatever the window was"
    third = inbox.next_unclaimed()
    inbox.release_behind(refused)
    assert released == [True]
    second = inbox.next_unclaimed()
    assert not inbox.claim(third), "it does not overtake the second"
    assert inbox.claim(second)
    assert released == [True, True]
    assert inbox.claim(inbox.next_unclaimed())
