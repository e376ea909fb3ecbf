"""Exclusive subscriptions: which consumer holds one, across all brokers.

A consumer attaches at every broker that owns a partition, and each of these brokers records it here under its
own session. A consumer is refused while another live broker has recorded another consumer. Rows of dead
brokers do not count. Rows of the broker itself do not count either: the broker knows which consumer is
attached to it, so such a row is only a leftover.
"""

from typing import Final

from millpond.catalog.database import CatalogTransaction
from millpond.catalog.subscriptions import StoredSubscription, lock
from millpond.catalog.topology import LIVE
from millpond.model.errors import SubscriptionBusy
from millpond.model.ids import Session

ANOTHER: Final = f"""
    SELECT consumer FROM exclusive_consumers
    WHERE subscription_id = ? AND consumer <> ? AND session <> ? AND session IN ({LIVE}) ORDER BY session LIMIT 1
"""  # noqa: S608  # our own text
FORGET_THE_DEAD: Final = f"""
    DELETE FROM exclusive_consumers WHERE subscription_id = ? AND session NOT IN ({LIVE})
"""  # noqa: S608  # our own text
NOTE: Final = """
    INSERT INTO exclusive_consumers (subscription_id, session, topic_id, consumer, token) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (subscription_id, session) DO UPDATE SET consumer = excluded.consumer, token = excluded.token
"""
RELEASE: Final = "DELETE FROM exclusive_consumers WHERE subscription_id = ? AND session = ? AND token = ?"


def hold(
    tx: CatalogTransaction, subscription: StoredSubscription, session: Session, consumer: str, token: str
) -> None:
    """Record a consumer, or raise `SubscriptionBusy` if another consumer holds the subscription at another
    broker."""
    lock(tx, subscription)
    found = tx.rows(ANOTHER, (subscription.id, consumer, session))
    if found:
        reason = f"it is exclusive, and {found[0][0]!r} has it"
        raise SubscriptionBusy(subscription=subscription.name, reason=reason)
    tx.rows(FORGET_THE_DEAD, (subscription.id,))
    tx.rows(NOTE, (subscription.id, session, subscription.topic_id, consumer, token))


def release(tx: CatalogTransaction, subscription: StoredSubscription, session: Session, token: str) -> None:
    """Remove the consumer's row, unless this or another consumer has been recorded since under another token."""
    tx.rows(RELEASE, (subscription.id, session, token))
