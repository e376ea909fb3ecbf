"""Every message Millpond can decode and encode, by Kafka API key. One file per API family."""

from millpond.protocol.messages import (
    acls,
    api_versions,
    cluster,
    configs,
    consumer_groups,
    fetch,
    group_admin,
    group_offsets,
    groups,
    metadata,
    offsets,
    produce,
    quotas,
    reassignments,
    sasl,
    scram,
    share_fetch,
    share_groups,
    topic_partitions,
    topics,
    transaction_admin,
    transactions,
)
from millpond.protocol.schema import Request

_FAMILIES = (
    *(acls, api_versions, cluster, configs, consumer_groups, fetch, group_admin, group_offsets, groups),
    *(metadata, offsets, produce, quotas, reassignments, sasl, scram, share_fetch, share_groups),
    *(topic_partitions, topics, transaction_admin, transactions),
)


def _requests() -> dict[int, type[Request]]:
    found: dict[int, type[Request]] = {}
    for family in _FAMILIES:
        for kind in vars(family).values():
            if isinstance(kind, type) and issubclass(kind, Request) and kind is not Request:
                assert kind.api_key not in found, f"two requests have key {kind.api_key}"
                found[kind.api_key] = kind
    return dict(sorted(found.items()))


REQUESTS = _requests()
"""API key to request type; `REQUESTS[key].response` is its response type."""
