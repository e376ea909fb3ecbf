"""The rights that handlers declare where they are registered: an operation on a type of resource.

The name of the resource comes with each request. A handler asks for its rights with the calls of `KafkaCall`.
"""

from typing import Final, NamedTuple

from millpond.model.acls import AclOperation, ResourceType


class Right(NamedTuple):
    operation: AclOperation
    resource: ResourceType

    def __str__(self) -> str:
        return f"{self.operation.name} {self.resource.name}"


READ_TOPIC: Final = Right(AclOperation.READ, ResourceType.TOPIC)
WRITE_TOPIC: Final = Right(AclOperation.WRITE, ResourceType.TOPIC)
CREATE_TOPIC: Final = Right(AclOperation.CREATE, ResourceType.TOPIC)
DELETE_TOPIC: Final = Right(AclOperation.DELETE, ResourceType.TOPIC)
ALTER_TOPIC: Final = Right(AclOperation.ALTER, ResourceType.TOPIC)
DESCRIBE_TOPIC: Final = Right(AclOperation.DESCRIBE, ResourceType.TOPIC)
DESCRIBE_TOPIC_CONFIGS: Final = Right(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC)
ALTER_TOPIC_CONFIGS: Final = Right(AclOperation.ALTER_CONFIGS, ResourceType.TOPIC)

READ_GROUP: Final = Right(AclOperation.READ, ResourceType.GROUP)
DELETE_GROUP: Final = Right(AclOperation.DELETE, ResourceType.GROUP)
DESCRIBE_GROUP: Final = Right(AclOperation.DESCRIBE, ResourceType.GROUP)
DESCRIBE_GROUP_CONFIGS: Final = Right(AclOperation.DESCRIBE_CONFIGS, ResourceType.GROUP)
ALTER_GROUP_CONFIGS: Final = Right(AclOperation.ALTER_CONFIGS, ResourceType.GROUP)

CREATE_CLUSTER: Final = Right(AclOperation.CREATE, ResourceType.CLUSTER)
ALTER_CLUSTER: Final = Right(AclOperation.ALTER, ResourceType.CLUSTER)
DESCRIBE_CLUSTER: Final = Right(AclOperation.DESCRIBE, ResourceType.CLUSTER)
CLUSTER_ACTION: Final = Right(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
DESCRIBE_BROKER_CONFIGS: Final = Right(AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
ALTER_BROKER_CONFIGS: Final = Right(AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER)
IDEMPOTENT_WRITE: Final = Right(AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)

WRITE_TRANSACTIONAL_ID: Final = Right(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID)
DESCRIBE_TRANSACTIONAL_ID: Final = Right(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)
