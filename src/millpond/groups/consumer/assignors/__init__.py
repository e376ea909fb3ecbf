"""The server-side assignors of consumer groups: which member is to own which partitions. They start from the previous
target, not from what members own right now."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from millpond.groups.consumer.assignors.members import Assign, AssignableMember, TargetAssignment
from millpond.groups.consumer.assignors.ranges import assign_ranges
from millpond.groups.consumer.assignors.uniform import assign_uniform

__all__ = ["ASSIGNORS", "Assign", "AssignableMember", "TargetAssignment"]

ASSIGNORS: Final[Mapping[str, Assign]] = MappingProxyType({"uniform": assign_uniform, "range": assign_ranges})
"""By name; the first one is the default."""
