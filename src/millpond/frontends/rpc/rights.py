"""Rights that several methods of the gRPC interface need, on the resources in the fields of their requests."""

from typing import Final

from millpond.model.acls import AclOperation, ResourceType
from millpond.security.requirements import Needs

SUBSCRIPTION: Final = ("topic", "name")
"""For ACLs a subscription is the group `topic/name`."""
DEAD_LETTER_TOPIC: Final = "config.dead_letter_topic"
READ_TOPIC: Final = Needs(AclOperation.READ, ResourceType.TOPIC, of="topic")
WRITE_TOPIC: Final = Needs(AclOperation.WRITE, ResourceType.TOPIC, of="topic")
READ_GROUP: Final = Needs(AclOperation.READ, ResourceType.GROUP, of="group")
READ_SUBSCRIPTION: Final = Needs(AclOperation.READ, ResourceType.GROUP, of=SUBSCRIPTION)
WRITE_DEAD_LETTERS: Final = Needs(
    AclOperation.WRITE, ResourceType.TOPIC, of=DEAD_LETTER_TOPIC, when=(DEAD_LETTER_TOPIC,)
)
"""On the topic that a request chooses; a subscription's own dead-letter topic needs no right."""
DESCRIBE_CLUSTER: Final = Needs(AclOperation.DESCRIBE, ResourceType.CLUSTER)
ALTER_CLUSTER: Final = Needs(AclOperation.ALTER, ResourceType.CLUSTER)
DESCRIBE_CLUSTER_CONFIGS: Final = Needs(AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
ALTER_CLUSTER_CONFIGS: Final = Needs(AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER)
