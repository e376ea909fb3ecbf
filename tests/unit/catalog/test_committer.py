"""How often a commit is tried, and what is raised when it cannot be done."""

from contextlib import contextmanager
from random import Random

import pytest

from millpond.catalog.commits import ATTEMPTS_MAX, RETRY_DELAY_S, Committer
from millpond.model.errors import CatalogFailed, CatalogUnavailable, OutcomeUnknown


class Failing:
    """A database that raises one error for each write, by plan."""

    def __init__(self, *plan):
        self.plan = list(plan)

    @contextmanager
    def write(self):
        raise self.plan.pop(0)
        yield


def tried(*plan):
    """The error a commit ends with, and the pauses it made."""
    pauses = []
    database = Failing(*plan)
    with pytest.raises(CatalogUnavailable) as raised:
        Committer(database, "s1", sleep=pauses.append).commit([lambda tx: None])
    return type(raised.value), len(plan) - len(database.plan), pauses


def test_a_catalog_that_stays_unavailable_is_given_up_after_a_few_tries():
    kind, tries, _ = tried(*(CatalogUnavailable(reason="down") for _ in range(ATTEMPTS_MAX)))
    assert (kind, tries) == (CatalogUnavailable, ATTEMPTS_MAX // 2 + 1)


def test_an_unknown_outcome_is_asked_about_longer_and_stays_unknown():
    refusals = (CatalogUnavailable(reason="down") for _ in range(ATTEMPTS_MAX))
    kind, tries, pauses = tried(OutcomeUnknown(), *refusals)
    assert (kind, tries) == (OutcomeUnknown, ATTEMPTS_MAX)
    assert pauses == sorted(pauses)
    assert all(RETRY_DELAY_S * 2**n / 2 <= pause <= RETRY_DELAY_S * 2**n for n, pause in enumerate(pauses))


def test_an_outcome_that_becomes_unknown_later_stays_unknown():
    refusal = CatalogUnavailable(reason="down")
    kind, tries, _ = tried(refusal, refusal, OutcomeUnknown(), refusal, refusal, refusal)
    assert (kind, tries) == (OutcomeUnknown, ATTEMPTS_MAX)


def test_a_failed_disk_is_not_tried_again():
    assert tried(CatalogFailed(reason="fsync"), CatalogFailed(reason="fsync")) == (CatalogFailed, 1, [])


def test_the_pauses_between_tries_come_from_the_random_numbers_it_is_given():
    def pauses_of(seed):
        database = Failing(*(OutcomeUnknown() for _ in range(ATTEMPTS_MAX)))
        tries = Committer(database, "s1", random=Random(seed)).tries([lambda tx: None])
        return [next(tries) for _ in range(ATTEMPTS_MAX)]

    assert pauses_of(1) == pauses_of(1) != pauses_of(2)
    assert pauses_of(1) == [RETRY_DELAY_S * 2**n * each for n, each in enumerate(uniform(Random(1)))]


def uniform(random):
    return [random.uniform(0.5, 1.0) for _ in range(ATTEMPTS_MAX)]


def test_the_tries_can_be_made_one_by_one():
    """For those who do not sleep between them."""
    database = Failing(CatalogUnavailable(reason="down"), OutcomeUnknown(), CatalogFailed(reason="fsync"))
    tries = Committer(database, "s1", sleep=pytest.fail).tries([lambda tx: None])
    assert RETRY_DELAY_S / 2 <= next(tries) <= RETRY_DELAY_S
    assert RETRY_DELAY_S <= next(tries) <= 2 * RETRY_DELAY_S
    with pytest.raises(CatalogFailed):
        next(tries)
