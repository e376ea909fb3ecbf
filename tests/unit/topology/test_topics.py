"""The topics that a broker knows."""

import uuid

from millpond.model.ids import TopicId, new_topic_id
from millpond.model.topics import Topic
from millpond.topology import TopicRegistry


def test_a_topic_is_shown_by_its_name_and_one_that_is_gone_by_its_id():
    registry = TopicRegistry({})
    orders, gone = new_topic_id(), TopicId(bytes(range(16)))
    registry.put(Topic(orders, "orders", 1, created_at=0))
    assert registry.name_of(orders) == "orders"
    assert registry.name_of(gone) == str(uuid.UUID(bytes=gone)) == "00010203-0405-0607-0809-0a0b0c0d0e0f"
