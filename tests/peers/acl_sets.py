"""Random ACLs for comparisons with Apache Kafka: few names that overlap in many ways, so that most ACLs matter."""

import random
from collections.abc import Sequence
from typing import Final

from millpond.model.acls import (
    CLUSTER_NAME,
    EVERY_USER,
    OPERATIONS,
    WILDCARD,
    Acl,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)

NAMES: Final = ("a", "ab", "abc", "b", "ba", "bb")
PREFIXES: Final = ("a", "ab", "abc", "b", "c")
HOSTS: Final = ("127.0.0.1", "127.0.0.2")
TYPES: Final = (
    *(ResourceType.TOPIC, ResourceType.TOPIC, ResourceType.GROUP),
    *(ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID),
)
"""Topics are chosen more often: most requests are about them."""


def random_acls(dice: random.Random, principals: Sequence[str], count: int) -> list[Acl]:
    """Without repeats."""
    return list(dict.fromkeys(_acl(dice, principals) for _ in range(count)))


def _acl(dice: random.Random, principals: Sequence[str]) -> Acl:
    kind = dice.choice(TYPES)
    pattern, name = _pattern(dice, kind)
    return Acl(
        resource_type=kind,
        pattern_type=pattern,
        name=name,
        principal=dice.choice([*principals, EVERY_USER]),
        host=dice.choice([WILDCARD, WILDCARD, *HOSTS]),
        operation=dice.choice([AclOperation.ALL, *OPERATIONS[kind]]),
        permission=dice.choices([Permission.ALLOW, Permission.DENY], [8, 2])[0],
    )


def _pattern(dice: random.Random, kind: ResourceType) -> tuple[PatternType, str]:
    if kind is ResourceType.CLUSTER:
        return PatternType.LITERAL, CLUSTER_NAME
    if dice.random() < 0.4:
        return PatternType.PREFIXED, dice.choice(PREFIXES)
    return PatternType.LITERAL, dice.choice([*NAMES, WILDCARD])
