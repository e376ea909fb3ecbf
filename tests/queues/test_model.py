"""The dispatcher against the model, in random histories of everything that may happen to a subscription.

Few keys and consumers, recent deliveries and a dispatch after nearly every event: that is where the mistakes are.
`test_mutants.py` checks that they would be found.
"""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.queues.world import ACK_TIMEOUT_MS, LARGEST, Shape, World

from millpond.model.subscriptions import ExhaustedAction, SubscriptionMode
from millpond.queues.share_acks import AckRange, AckType, malformed

CONSUMER = st.sampled_from(["anna", "bert", "carl"])
KEYS = st.lists(st.sampled_from(["a", "a", "b", "b", "c", None, "void"]), min_size=1, max_size=4)
CREDIT = st.sampled_from([0, 1, 2, 4, 6])
SIZE = st.integers(0, LARGEST - 1)
ROOM = st.sampled_from([None, None, None, 0, 30, 100])
RECENT = st.integers(0, 6)
DELAY_MS = st.sampled_from([None, None, 0, 0, 3_000])
REASON = st.sampled_from(["", "bad", "worse"])
OUTCOME = st.sampled_from(["stored", "stored", "stored", "refused", "unheard"])


class History(RuleBasedStateMachine):
    """Rules that matter less share one, so that most of what happens is work."""

    shapes: tuple[Shape, ...]

    @initialize(
        index=st.integers(0, 7),
        leases_max=st.integers(1, 6),
        attempts_max=st.integers(1, 3),
        on_exhausted=st.sampled_from(list(ExhaustedAction)),
        grants=st.lists(CREDIT, max_size=3),
        keys=st.lists(KEYS, max_size=3),
    )
    def start(self, index, leases_max, attempts_max, on_exhausted, grants, keys):
        self.world = World(self.shapes[index % len(self.shapes)], leases_max, attempts_max, on_exhausted)
        for name, messages in zip(["anna", "bert", "carl"], grants, strict=False):
            self.world.attach(name, messages, None)
        self.world.publish([key for some in keys for key in some], 1, 0)
        self.world.turn()

    @rule(keys=KEYS, size=SIZE, delay_ms=st.sampled_from([0, 0, 0, 3_000]))
    def publish(self, keys, size, delay_ms):
        self.world.publish(keys, size, delay_ms)
        self.world.turn()

    @rule(name=CONSUMER, messages=CREDIT, room=ROOM)
    def attach(self, name, messages, room):
        self.world.attach(name, messages, room)
        self.world.turn()

    @rule(name=CONSUMER, what=st.sampled_from(["leave", "break", "pause", "resume", "resume"]))
    def consumer(self, name, what):
        if what in ("leave", "break"):
            self.world.detach(name, graceful=what == "leave")
        else:
            self.world.pause(name, paused=what == "pause")
        self.world.turn()

    @precondition(lambda self: self.world.tokens)
    @rule(index=RECENT, turn=st.booleans())
    def ack(self, index, turn):
        self.world.ack(self.world.token(index))
        if turn:
            self.world.turn(expire=False)

    @precondition(lambda self: self.world.tokens)
    @rule(index=RECENT, delay_ms=DELAY_MS, reason=REASON, turn=st.booleans())
    def nack(self, index, delay_ms, reason, turn):
        self.world.nack(self.world.token(index), delay_ms, reason)
        if turn:
            self.world.turn(expire=False)

    @precondition(lambda self: self.world.tokens)
    @rule(index=RECENT, what=st.sampled_from(["through", "give back", "extend", "shorten", "forge"]))
    def answer(self, index, what):
        token = self.world.token(index)
        if what == "through":
            self.world.ack(token, through=True)
        elif what == "give back":
            self.world.restore(token)
        elif what == "forge":
            self.world.forge(token)
        else:
            self.world.extend(token, 1_000 if what == "shorten" else 30_000)
        self.world.turn()

    @precondition(lambda self: self.world.tokens)
    @rule(
        index=RECENT,
        name=st.sampled_from([None, None, None, "anna"]),
        kinds=st.lists(st.sampled_from([*AckType, AckType.ACCEPT]), min_size=1, max_size=3),
        is_range=st.booleans(),
        earlier=st.sampled_from([0, 0, 0, 1, 2]),
        more=st.sampled_from([False, False, True]),
        renew_allowed=st.sampled_from([True, True, False]),
    )
    def share_ack(self, index, name, kinds, is_range, earlier, more, renew_allowed):
        """What a member says about a delivery and those around it: one type for a range, or one for each offset; then
        perhaps a range with one more offset."""
        token = self.world.token(index)
        first = max(token.offset - earlier, 0)
        last = token.offset if is_range else first + len(kinds) - 1
        ranges = [AckRange(first, last, kinds[:1] if is_range else kinds)]
        if more:
            ranges.append(AckRange(last + 1, last + 1, [AckType.ACCEPT]))
        assert not malformed(ranges, renews=True)
        self.world.share_ack(name or token.consumer, ranges, renew_allowed=renew_allowed)
        self.world.turn(expire=False)

    @rule(outcome=OUTCOME)
    def commit(self, outcome):
        self.world.commit(outcome)
        self.world.turn()

    @rule(by_ms=st.sampled_from([500, 3_000, ACK_TIMEOUT_MS - 10, ACK_TIMEOUT_MS]))
    def advance_time(self, by_ms):
        self.world.advance_time(by_ms)
        self.world.turn()

    @rule(
        what=st.sampled_from(
            ["unblock", "unblock all", "balance", "truncate", "compact", "vanish", "vanish"]
        ),
        back=st.integers(1, 12),
    )
    def operator(self, what, back):
        offset = max(self.world.log.end - back, 0)
        if what == "unblock":
            self.world.unblock(offset)
        elif what == "unblock all":
            self.world.unblock(None)
        elif what == "balance":
            self.world.balance()
        elif what == "truncate":
            self.world.truncate(back % 3 + 1)
        elif what == "compact":
            self.world.compact(offset)
        else:
            self.world.vanish(back)
        self.world.turn()

    @rule(what=st.sampled_from(["crash", "stored", "unblocked", "haunt", "haunt"]), index=RECENT)
    def accident(self, what, index):
        if what != "haunt":
            self.world.crash(stored=what != "crash", unblock=what == "unblocked")
            self.world.turn()
        elif self.world.zombies and self.world.tokens:
            self.world.haunt(index, self.world.token(index))

    @invariant()
    def hold(self):
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self):
        if hasattr(self, "world"):
            try:
                self.world.heal()
            finally:
                self.world.close()


class Strict(History):
    shapes = (
        Shape(SubscriptionMode.KEY_SHARED),
        Shape(SubscriptionMode.KEY_SHARED, per_key_max=1),
        Shape(SubscriptionMode.KEY_SHARED, per_key_max=2),
    )


class Pipelined(History):
    shapes = (
        Shape(SubscriptionMode.KEY_SHARED, key_window=3),
        Shape(SubscriptionMode.KEY_SHARED, key_window=3, per_key_max=6),
    )


class Shared(History):
    shapes = (Shape(SubscriptionMode.SHARED),)


class Failover(History):
    shapes = (Shape(SubscriptionMode.FAILOVER),)


class Exclusive(History):
    shapes = (Shape(SubscriptionMode.EXCLUSIVE),)


class Crowded(History):
    """So little is tracked that the dispatcher cannot see all that the model sees."""

    shapes = (
        Shape(SubscriptionMode.KEY_SHARED, per_key_max=1, tracked_max=3, exact=False),
        Shape(SubscriptionMode.KEY_SHARED, key_window=3, per_key_max=1, tracked_max=4, exact=False),
        Shape(SubscriptionMode.SHARED, tracked_max=3, exact=False),
        Shape(SubscriptionMode.FAILOVER, tracked_max=3, exact=False),
    )


KINDS = (Strict, Pipelined, Shared, Failover, Exclusive, Crowded)
HISTORIES = settings(
    max_examples=60, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.mark.parametrize("histories", [60, pytest.param(500, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__.lower())
def test_the_dispatcher_does_what_the_model_does(kind, histories):
    run_state_machine_as_test(kind, settings=settings(HISTORIES, max_examples=histories))
