"""Groups of clients of both protocols under random histories: each partition has one owner at a time, everything that a
client has learnt survives its coordinator, and the group settles. See `group_world`."""

import asyncio
import random

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.each import for_each
from tests.unit.groups.consumer.group_world import KINDS, NAMES, World

REPORTS = ("nothing", "owned", "everything")
SUBSCRIPTIONS = (("t1",), ("t1", "t2"), ("t2", "t3"), ())
TOPICS = ("t1", "t2", "t3")
BOTH = ("consumer", "consumer", *KINDS)
SEEDS = (*range(40), 493, 563, 687, 752, 787, 1633, 1683, 1879, 2413)
"""Those that are not in a range once found a mistake."""
EVENTS = 80
"""Of a long history."""
WEIGHTS = {
    "start": 12, "beat": 30, "finish": 8, "lose": 6, "subscribe": 4, "die": 3, "leave": 4, "remove": 2, "topic": 5,
    "hold": 4, "fail": 2, "crash": 4, "wait": 5, "commit": 10, "round": 6,
    "replace": 3,
}  # fmt: skip

names = st.sampled_from(NAMES)
reports = st.sampled_from(REPORTS)
subscriptions = st.sampled_from(SUBSCRIPTIONS)


def starts(kinds):
    return st.tuples(
        st.just("start"),
        names,
        st.sampled_from(kinds),
        st.booleans(),  # is static
        subscriptions,
        st.sampled_from(["", "", "t.*"]),
        st.sampled_from([None, "range", "uniform"]),
    )


def events(kinds):
    return st.one_of(
        starts(kinds),
        starts(kinds),
        st.tuples(st.just("beat"), names, reports),
        st.tuples(st.just("beat"), names, reports),
        st.tuples(st.just("finish"), names),
        st.tuples(st.just("lose"), names, st.booleans()),
        st.tuples(st.just("subscribe"), names, subscriptions),
        st.tuples(st.just("die"), names),
        st.tuples(st.just("leave"), names, st.booleans()),
        st.tuples(st.just("remove"), names),
        st.tuples(st.just("replace"), names),
        st.tuples(st.just("topic"), st.sampled_from(TOPICS), st.sampled_from([0, 1, 3, 5, 7])),
        st.tuples(st.just("hold"), st.booleans()),
        st.tuples(st.just("fail")),
        st.tuples(st.just("crash"), st.booleans()),
        st.tuples(st.just("wait"), st.sampled_from([100, 5_000, 20_000, 46_000])),
        st.tuples(st.just("commit"), names),
        st.tuples(st.just("round")),
        st.tuples(st.just("round")),
    )


async def history_of(history):
    world = World()
    for event in history:
        await world.play(event)
    await world.check_settled()


def long_history(seed, kinds=BOTH):
    """Longer than those that hypothesis tries, and of events as they are more likely."""
    rng = random.Random(seed)
    chosen = rng.choices(list(WEIGHTS), list(WEIGHTS.values()), k=EVENTS)
    return [(kind, *arguments_of(kind, rng, kinds)) for kind in chosen]


def arguments_of(kind, rng, kinds):
    name, flag = rng.choice(NAMES), rng.random() < 0.5
    match kind:
        case "start":
            regex, assignor = rng.choice(["", "", "t.*"]), rng.choice([None, None, "range", "uniform"])
            return name, rng.choice(kinds), flag, rng.choice(SUBSCRIPTIONS), regex, assignor
        case "beat":
            return name, rng.choice(REPORTS)
        case "subscribe":
            return name, rng.choice(SUBSCRIPTIONS)
        case "topic":
            return rng.choice(TOPICS), rng.choice([0, 1, 3, 5, 7])
        case "lose" | "leave":
            return name, flag
        case "wait":
            return (rng.choice([100, 5_000, 20_000, 46_000]),)
        case "hold" | "crash":
            return (flag,)
        case "fail" | "round":
            return ()
    return (name,)


@settings(max_examples=60)
@given(st.lists(events(["consumer"]), min_size=10, max_size=50))
def test_members_of_the_consumer_protocol_share_partitions(history):
    asyncio.run(history_of(history))


@settings(max_examples=60)
@given(st.lists(events(BOTH), min_size=10, max_size=50))
def test_members_of_both_protocols_share_partitions(history):
    asyncio.run(history_of(history))


@for_each("seed", SEEDS)
def test_members_share_partitions_through_long_histories(seed):
    asyncio.run(history_of(long_history(seed, BOTH if seed % 2 else ("consumer",))))
