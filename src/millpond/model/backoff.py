"""The delay before a retry: it doubles with each attempt, and a random part of it is left out, so that processes that
failed together do not retry together. The caller supplies the randomness."""

import math
from random import Random
from typing import Final

DOUBLINGS_MAX: Final = 62
"""More would overflow a float one day, and wait longer than any process lives."""


def retry_delay(
    base: float, doublings: int, random: Random, *, maximum: float = math.inf, jitter: float = 0.5
) -> float:
    """`base` doubled this many times, at most `maximum`, less a random part of up to `jitter` of it. With a jitter
    of 1.0 the delay may be 0 (full jitter). In the unit of `base`."""
    return min(base * (1 << min(doublings, DOUBLINGS_MAX)), maximum) * random.uniform(1.0 - jitter, 1.0)
