"""Consumer groups: members come and go, and every message is read by one of them."""

from tests.clients.members import PARTITIONS, drain, fill, numbers, until


def test_members_share_the_partitions_and_read_each_message_once(setting, topic, group):
    everything = set(range(PARTITIONS))
    fill(setting, topic, 0, 40)
    first = setting.consumer(topics=[topic], group=group)
    assert drain(40, first) == list(range(40))
    assert numbers(first) == everything

    second = setting.consumer(topics=[topic], group=group)
    until(lambda: len(numbers(first)) == len(numbers(second)) == 2, first, second)
    assert numbers(first) | numbers(second) == everything
    fill(setting, topic, 40, 40)
    assert drain(40, first, second) == list(range(40, 80))

    second.close()
    until(lambda: numbers(first) == everything, first)
    fill(setting, topic, 80, 40)
    assert drain(40, first) == list(range(80, 120))


def test_a_group_goes_on_where_it_had_committed(setting, topic, group):
    fill(setting, topic, 0, 40)
    first = setting.consumer(topics=[topic], group=group)
    drain(40, first)
    assert {first.committed((topic, number)) for number in range(PARTITIONS)} == {10}
    first.close()
    fill(setting, topic, 40, 40)
    assert drain(40, setting.consumer(topics=[topic], group=group)) == list(range(40, 80))
