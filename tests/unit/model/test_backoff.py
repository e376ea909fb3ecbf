"""Delays before retries."""

from random import Random

from tests.each import for_each

from millpond.model.backoff import retry_delay


class Drawn(Random):
    """Draws the same fraction each time."""

    def __init__(self, fraction):
        super().__init__()
        self.fraction = fraction

    def random(self):
        return self.fraction


@for_each(
    "case",
    [  # doublings, fraction, jitter, expected
        (0, 1.0, 0.5, 8),
        (0, 0.0, 0.5, 4),
        (1, 1.0, 0.5, 16),
        (3, 0.5, 0.5, 48),
        (4, 1.0, 0.5, 100),
        (4, 0.0, 0.5, 50),
        (60, 0.5, 1.0, 50),
        (2, 0.0, 1.0, 0),
        (2, 0.25, 1.0, 8),
        (2, 0.25, 0.0, 32),
    ],
)
def test_a_delay_doubles_up_to_its_maximum_and_is_spread(case):
    doublings, fraction, jitter, expected = case
    assert retry_delay(8, doublings, Drawn(fraction), maximum=100, jitter=jitter) == expected


def test_without_a_maximum_it_doubles_for_ever():
    assert retry_delay(0.05, 10, Drawn(1.0)) == 0.05 * 1024


def test_the_same_seed_gives_the_same_delays():
    first, second = Random(7), Random(7)
    assert [retry_delay(1, n, first) for n in range(9)] == [retry_delay(1, n, second) for n in range(9)]
