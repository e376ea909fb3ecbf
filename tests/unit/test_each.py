"""`for_each` runs its test for every value, and says which one failed."""

import pytest
from tests.each import for_each


def test_every_value_is_tried_with_the_other_arguments():
    tried = []
    for_each("value", [1, 2])(lambda value, other: tried.append((value, other)))(other="x")
    assert tried == [(1, "x"), (2, "x")]


def test_the_value_that_failed_is_named():
    @for_each("value", [1, 0, 2])
    def divide(value):
        assert 1 / value

    with pytest.raises(ZeroDivisionError) as caught:
        divide()
    assert caught.value.__notes__ == ["value = 0"]


def test_nothing_to_try_is_a_mistake():
    with pytest.raises(AssertionError):
        for_each("value", [])
