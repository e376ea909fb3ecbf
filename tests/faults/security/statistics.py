"""The Mann-Whitney test, and percentiles."""

import math
from collections.abc import Sequence
from typing import NamedTuple


class Comparison(NamedTuple):
    p: float
    """How likely two samples of one distribution differ as much as these or more."""
    larger: float
    """How often a value of the first sample is larger than one of the second; 0.5 if neither is."""


def mann_whitney(first: Sequence[float], second: Sequence[float]) -> Comparison:
    """Two-sided, by the normal approximation, with the correction for equal values."""
    ordered = sorted([(value, 0) for value in first] + [(value, 1) for value in second])
    count, ranks, ties, start = len(ordered), 0.0, 0.0, 0
    while start < count:
        end = start
        while end < count and ordered[end][0] == ordered[start][0]:
            end += 1
        equal = end - start
        ranks += sum(1 for _, sample in ordered[start:end] if sample == 0) * (start + end + 1) / 2
        ties += equal**3 - equal
        start = end
    one, two = len(first), len(second)
    u = ranks - one * (one + 1) / 2
    deviation = math.sqrt(one * two / 12 * (count + 1 - ties / (count * (count - 1))))
    z = (abs(u - one * two / 2) - 0.5) / deviation if deviation else 0.0
    return Comparison(min(1.0, math.erfc(max(z, 0.0) / math.sqrt(2))), u / (one * two))


def percentile(values: Sequence[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]
