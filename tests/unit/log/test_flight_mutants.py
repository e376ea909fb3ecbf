"""Whether the histories of `flight_histories.py` find mistakes in the rules of flights: each is made in a copy, where
they must fail."""

import pytest
from tests.unit.log.flight_mutants import MUTANTS, found, mutated


@pytest.mark.long
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_the_histories_find_a_mistake(mutant, tmp_path, figures):
    how = found(mutated(mutant, tmp_path))
    figures.append(f"mutants of the flights: {'found' if how else 'not found'}: {mutant.name}: {how}")
    assert how is not None


def test_every_mistake_can_be_made(tmp_path):
    """The code it stands for is still there."""
    for number, mutant in enumerate(MUTANTS):
        mutated(mutant, tmp_path / str(number))
