"""Topics for groups of the consumer protocol, without a catalog."""

from millpond.groups.consumer.messages import SubscribableTopic
from millpond.model.ids import TopicId, TopicPartition


class KnownTopics:
    """As the machine sees them: a change makes another object. `made` tells two topics of one name apart."""

    def __init__(self, partitions, made=None):
        self._made = dict(made or {})
        self._topics = {
            name: SubscribableTopic(topic_id(name, self._made.get(name, 0)), name, count)
            for name, count in partitions.items()
        }
        self._by_id = {each.topic_id: each for each in self._topics.values()}

    def find(self, name):
        return self._topics.get(name)

    def with_id(self, topic_id):
        return self._by_id.get(topic_id)

    def names(self):
        return self._topics.keys()

    def changed(self, **partitions):
        """With these counts of partitions; 0 deletes the topic. A topic that comes again is another one."""
        counts = {name: each.partitions for name, each in self._topics.items()}
        for name in partitions.keys() - counts.keys():
            self._made[name] = self._made.get(name, -1) + 1
        return KnownTopics({name: n for name, n in (counts | partitions).items() if n}, self._made)


def topic_id(name, made=0):
    return TopicId(name.encode()[:15].ljust(15, b"\0") + bytes([made]))


def partitions_of(text, topics):
    """`logs:0,1;other:2`, or `none`."""
    found = set()
    for each in text.split(";") if text != "none" else ():
        name, _, numbers = each.partition(":")
        topic = topics.find(name)
        ident = topic.topic_id if topic is not None else topic_id(name)
        found.update(TopicPartition(ident, int(number)) for number in numbers.split(","))
    return frozenset(found)


def text_of(partitions, topics):
    """The reverse of `partitions_of`. Topics that are deleted have a cross."""
    by_topic = {}
    for ident, number in sorted(partitions):
        topic = topics.with_id(ident)
        name = topic.name if topic is not None else ident[:15].rstrip(b"\0").decode() + "†"
        by_topic.setdefault(name, []).append(str(number))
    return ";".join(f"{name}:{','.join(numbers)}" for name, numbers in sorted(by_topic.items())) or "none"
