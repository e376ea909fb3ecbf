"""Share groups (KIP-932): Kafka consumers that share the messages of a topic and acknowledge each by itself.

A share group is a group, and one subscription in each of its topics, which has the state of the messages. This module
has what both sides of that must agree on: the name of the subscription, and what the group's config means for it.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from typing import Final

from millpond.model.subscriptions import NAME_CHARACTERS, NAME_LENGTH_MAX

SHARE_PREFIX: Final = "share."
"""Subscriptions with this prefix belong to share groups; users cannot create them."""
HASHED_PREFIX: Final = "share.."
LATEST: Final = "latest"
EARLIEST: Final = "earliest"
BY_DURATION: Final = "by_duration:"
_DURATION: Final = re.compile(
    r"P(?=.)(?:(\d{1,9})D)?(?:T(?=.)(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9})(?:[.,](\d{1,9}))?S)?)?",
    re.ASCII | re.IGNORECASE,
)


class ShareIsolation(StrEnum):
    """Which messages of transactions the members of a share group receive."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


@dataclass(frozen=True, slots=True)
class ShareGroupConfig:
    """The values that apply to a share group. Defaults are Kafka's."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    record_lock_ms: int = 30_000
    """How long a member may process a message before others receive it."""
    delivery_count_limit: int = 5
    """Maximum number of deliveries of a message."""
    partition_locks_max: int = 2_000
    """Maximum number of messages of a partition in flight."""
    renew_allowed: bool = True
    """Whether members may restart the lock of a message."""
    start: str = LATEST
    """Where the group starts in a topic: `latest`, `earliest` or `by_duration:P…`."""
    isolation: ShareIsolation = ShareIsolation.READ_UNCOMMITTED
    dead_letter_topic: str = ""
    """Empty: the default of subscriptions."""
    key_order: bool = False
    """Whether the messages of a key are delivered one after the other."""


def subscription_name(group_id: str) -> str:
    """The name of the subscription of a share group in each of its topics. An id that no subscription could have is
    hashed."""
    name = f"{SHARE_PREFIX}{group_id}"
    plain = set(group_id) <= NAME_CHARACTERS and not group_id.startswith(".")
    if plain and len(name) <= NAME_LENGTH_MAX:
        return name
    return f"{HASHED_PREFIX}{blake2b(group_id.encode(), digest_size=16).hexdigest()}"


def duration_of_start(start: str) -> int:
    """The milliseconds in `by_duration:P…`, whose duration is one of ISO 8601, as Java reads it. Raises ValueError."""
    found = _DURATION.fullmatch(start.removeprefix(BY_DURATION)) if start.startswith(BY_DURATION) else None
    if found is None:
        raise ValueError(f"write {EARLIEST}, {LATEST} or {BY_DURATION}PnDTnHnMn.nS")
    days, hours, minutes, seconds = (int(each or 0) for each in found.groups()[:4])
    fraction_ms = int((found[5] or "").ljust(3, "0")[:3])
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 + fraction_ms
