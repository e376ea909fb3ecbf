"""The config that applies to the subscription of a share group. The group's config decides, not the stored one."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from millpond.catalog.subscriptions import StoredSubscription
from millpond.model.share_groups import ShareGroupConfig, ShareIsolation
from millpond.model.subscriptions import BOUNDS, SubscriptionConfig, SubscriptionMode

ShareConfigOf = Callable[[str], ShareGroupConfig]
"""The values that apply to a share group now, by its id."""
STRICT_WINDOW: Final = 1


def defaults_of(group_id: str) -> ShareGroupConfig:
    """Of a broker without group configs."""
    del group_id
    return ShareGroupConfig()


def effective(stored: StoredSubscription, share_config_of: ShareConfigOf) -> StoredSubscription:
    """The subscription with the config that applies; unchanged if it belongs to no share group."""
    if not stored.share_group:
        return stored
    share = share_config_of(stored.share_group)
    return replace(
        stored,
        config=subscription_config(share),
        read_committed=share.isolation is ShareIsolation.READ_COMMITTED,
    )


def subscription_config(share: ShareGroupConfig) -> SubscriptionConfig:
    """A message that is released or whose lock ends is available at once. Values beyond the bounds of a subscription
    become the nearest ones."""
    return SubscriptionConfig(
        mode=SubscriptionMode.KEY_SHARED if share.key_order else SubscriptionMode.SHARED,
        ack_timeout_ms=_within("ack_timeout_ms", share.record_lock_ms),
        attempts_max=_within("attempts_max", share.delivery_count_limit),
        dead_letter_topic=share.dead_letter_topic,
        backoff_ms=0,
        backoff_max_ms=0,
        key_window=STRICT_WINDOW,
        leases_max=_within("leases_max", share.partition_locks_max),
    )


def _within(name: str, value: int) -> int:
    least, most = BOUNDS[name]
    return min(max(value, least), most)
