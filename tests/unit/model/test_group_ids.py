"""Ids of groups and members that PostgreSQL can store, too."""

import pytest
from tests.each import for_each

from millpond.model.errors import InvalidGroupId
from millpond.model.group_ids import (
    GROUP_ID_BYTES_MAX,
    MEMBER_ID_BYTES_MAX,
    check_group_id,
    check_storable_group_id,
    is_storable_member_id,
    new_member_id,
)

INDEX_ENTRY_BYTES_MAX = 2_704
ENTRY_OVERHEAD_BYTES = 32


@for_each("name", ["a\0b", "é" * 10_000, "x" * 10_000, "\ud800", "a\nb", "", "\U0001f600" * 999])
def test_a_new_member_id_can_be_stored_whatever_its_client_is_called(name):
    assert is_storable_member_id(new_member_id(name))


def test_a_new_member_id_begins_with_the_name():
    assert new_member_id("a\0b é").startswith("ab é-")
    assert new_member_id("a") != new_member_id("a")


def test_a_group_id_and_a_member_id_fit_into_one_entry_of_an_index():
    assert GROUP_ID_BYTES_MAX + MEMBER_ID_BYTES_MAX + ENTRY_OVERHEAD_BYTES <= INDEX_ENTRY_BYTES_MAX


@for_each("group_id", ["g" * 1_001, "é" * 501, "a\0b", "a\x01"])
def test_a_group_id_that_cannot_be_stored_is_refused(group_id):
    with pytest.raises(InvalidGroupId, match="1000 bytes or a control character"):
        check_group_id(group_id)


def test_only_commits_may_leave_the_group_id_empty():
    check_storable_group_id("")
    check_group_id("g" * 1_000)
    with pytest.raises(InvalidGroupId, match="'' is not valid"):
        check_group_id("")
