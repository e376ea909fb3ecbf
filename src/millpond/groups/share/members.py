"""A member of a share group, as a value: each step of the machine replaces it."""

from dataclasses import dataclass

from millpond.model.ids import TopicPartition

NO_PARTITIONS: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class ShareMember:
    """`topic_names` are sorted, each once. `epoch` is the target epoch whose assignment the member has received,
    `previous_epoch` the one before."""

    member_id: str
    client_id: str
    client_host: str
    rack_id: str | None = None
    topic_names: tuple[str, ...] = ()
    epoch: int = 0
    previous_epoch: int = 0
    assigned: frozenset[TopicPartition] = NO_PARTITIONS
