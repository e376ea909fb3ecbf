"""What machines of consumer groups and their shell tell each other."""

from millpond.groups.consumer.messages import GroupChanges


def test_changes_that_are_stored_together_are_complete_if_the_first_ones_are():
    first = GroupChanges(3, is_empty=False, state="a", members={"alice": "1", "bob": "2"}, complete=True)
    later = GroupChanges(4, is_empty=True, state=None, members={"bob": None, "carol": "3"})
    members = {"alice": "1", "bob": None, "carol": "3"}
    assert first.followed_by(later) == GroupChanges(4, True, "a", members, complete=True)
    assert not later.followed_by(later).complete
