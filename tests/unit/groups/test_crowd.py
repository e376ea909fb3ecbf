"""Members that are started together: few generations, soon. In virtual time, so the times are exact."""

import pytest
from tests.unit.groups.crowd import Crowd, scattered

from millpond.groups.limits import GroupLimits

DEFAULT_MS = GroupLimits().initial_rebalance_delay_ms
INSTANT_MS = 200
"""What a person does not notice."""
SEEDS = range(20)


def test_a_member_that_is_alone_has_its_assignment_at_once():
    alone = Crowd(DEFAULT_MS, [0]).run()
    assert alone.generations == 1
    assert alone.all_ms < INSTANT_MS


@pytest.mark.parametrize("within_ms", [0, 10, 100, 500, 1_000])
def test_fifty_members_that_arrive_within_a_second_share_one_generation(within_ms):
    found = [Crowd(DEFAULT_MS, scattered(50, within_ms, seed)).run() for seed in SEEDS]
    assert {each.generations for each in found} == {1}
    assert max(each.all_ms for each in found) < within_ms + 5 * DEFAULT_MS


def test_members_that_never_stop_arriving_wait_for_thirty_delays_at_most():
    found = Crowd(DEFAULT_MS, [90 * number for number in range(200)]).run()
    assert 30 * DEFAULT_MS <= found.first_ms < 30 * DEFAULT_MS + INSTANT_MS


def test_without_a_delay_the_same_members_make_several_generations():
    """What the delay is for: with 0, as in Kafka's server.properties, each of these takes a heartbeat interval."""
    found = [Crowd(0, scattered(50, 100, seed)).run() for seed in SEEDS]
    assert min(each.generations for each in found) > 1


@pytest.mark.parametrize("within_ms", [0, 500])
def test_kafkas_delay_of_three_seconds_is_repeated_as_it_is(within_ms):
    found = Crowd(3_000, scattered(50, within_ms, seed=1)).run()
    assert found.generations == 1
    assert 6_000 <= found.all_ms < 6_000 + INSTANT_MS
