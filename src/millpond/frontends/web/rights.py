"""Rights that several operations of the HTTP interface need, on the resources in their paths."""

from typing import Final

from millpond.model.acls import AclOperation, ResourceType
from millpond.security.requirements import Needs

TOPIC: Final = "path.topic"
SUBSCRIPTION: Final = ("path.topic", "path.subscription")
"""For ACLs a subscription is the group `topic/subscription`."""
DEAD_LETTER_TOPIC: Final = "body.config.dead_letter_topic"
READ_TOPIC: Final = Needs(AclOperation.READ, ResourceType.TOPIC, of=TOPIC)
WRITE_TOPIC: Final = Needs(AclOperation.WRITE, ResourceType.TOPIC, of=TOPIC)
DESCRIBE_TOPIC: Final = Needs(AclOperation.DESCRIBE, ResourceType.TOPIC, of=TOPIC)
READ_SUBSCRIPTION: Final = Needs(AclOperation.READ, ResourceType.GROUP, of=SUBSCRIPTION)
WRITE_DEAD_LETTERS: Final = Needs(
    AclOperation.WRITE, ResourceType.TOPIC, of=DEAD_LETTER_TOPIC, when=(DEAD_LETTER_TOPIC,)
)
"""On the topic that a request chooses; a subscription's own dead-letter topic needs no right."""
DESCRIBE_CLUSTER: Final = Needs(AclOperation.DESCRIBE, ResourceType.CLUSTER)
ALTER_CLUSTER: Final = Needs(AclOperation.ALTER, ResourceType.CLUSTER)
DESCRIBE_CLUSTER_CONFIGS: Final = Needs(AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
ALTER_CLUSTER_CONFIGS: Final = Needs(AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER)
