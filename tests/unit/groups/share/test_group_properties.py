"""Share groups under random histories: everything that a member has learnt survives its coordinator, and the group
settles with every partition read and all members busy. See `share_world`."""

import asyncio
import random

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.each import for_each
from tests.unit.groups.share.share_world import NAMES, ShareWorld

SUBSCRIPTIONS = (("t1",), ("t1", "t2"), ("t2", "t3"), ("t3",))
TOPICS = ("t1", "t2", "t3")
SEEDS = range(40)
EVENTS = 80
"""Of a long history."""
WEIGHTS = {
    "start": 14, "beat": 30, "lose": 8, "subscribe": 6, "die": 3, "leave": 5, "begin": 2, "topic": 6, "hold": 4,
    "fail": 2, "crash": 5, "wait": 5, "round": 6,
}  # fmt: skip

names = st.sampled_from(NAMES)
subscriptions = st.sampled_from(SUBSCRIPTIONS)
events = st.one_of(
    st.tuples(st.just("start"), names, subscriptions),
    st.tuples(st.just("start"), names, subscriptions),
    st.tuples(st.just("beat"), names),
    st.tuples(st.just("beat"), names),
    st.tuples(st.just("lose"), names, st.booleans()),
    st.tuples(st.just("subscribe"), names, subscriptions),
    st.tuples(st.just("die"), names),
    st.tuples(st.just("leave"), names),
    st.tuples(st.just("begin")),
    st.tuples(st.just("topic"), st.sampled_from(TOPICS), st.sampled_from([0, 1, 3, 5, 7])),
    st.tuples(st.just("hold"), st.booleans()),
    st.tuples(st.just("fail")),
    st.tuples(st.just("crash"), st.booleans()),
    st.tuples(st.just("wait"), st.sampled_from([100, 5_000, 20_000, 46_000])),
    st.tuples(st.just("round")),
)


async def history_of(history):
    world = ShareWorld()
    for event in history:
        await world.play(event)
    await world.check_settled()


def long_history(seed):
    """Longer than those that hypothesis tries, and of events as they are more likely."""
    rng = random.Random(seed)
    chosen = rng.choices(list(WEIGHTS), list(WEIGHTS.values()), k=EVENTS)
    return [(kind, *arguments_of(kind, rng)) for kind in chosen]


def arguments_of(kind, rng):
    name, flag = rng.choice(NAMES), rng.random() < 0.5
    match kind:
        case "start" | "subscribe":
            return name, rng.choice(SUBSCRIPTIONS)
        case "topic":
            return rng.choice(TOPICS), rng.choice([0, 1, 3, 5, 7])
        case "lose":
            return name, flag
        case "wait":
            return (rng.choice([100, 5_000, 20_000, 46_000]),)
        case "hold" | "crash":
            return (flag,)
        case "fail" | "round" | "begin":
            return ()
    return (name,)


@settings(max_examples=60)
@given(st.lists(events, min_size=10, max_size=50))
def test_members_of_a_share_group_divide_partitions(history):
    asyncio.run(history_of(history))


@for_each("seed", SEEDS)
def test_members_of_a_share_group_divide_partitions_through_long_histories(seed):
    asyncio.run(history_of(long_history(seed)))
