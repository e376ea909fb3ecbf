"""The name of a share group's subscription."""

import pytest

from millpond.model.share_groups import subscription_name
from millpond.model.subscriptions import NAME_LENGTH_MAX, check_name


@pytest.mark.parametrize("group_id", ["orders", "a.b-c_d", "x" * (NAME_LENGTH_MAX - len("share."))])
def test_an_id_that_a_subscription_could_have_is_readable(group_id):
    assert subscription_name(group_id) == f"share.{group_id}"
    check_name(subscription_name(group_id))


def test_any_other_id_has_a_name_of_its_own():
    others = [
        "",
        "größe",
        "a b",
        ".hidden",
        "." + "0" * 32,
        "x" * NAME_LENGTH_MAX,
        "y" * 10_000,
        "a/b",
        "a%2Fb",
    ]
    names = [subscription_name(each) for each in [*others, "orders"]]
    assert len(set(names)) == len(names)
    for name in names:
        check_name(name)
