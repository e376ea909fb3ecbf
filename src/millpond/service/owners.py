"""Who else serves a partition, for clients that asked the wrong broker.

A broker leaves the addresses of its faces in the catalog when it joins. Here they are read again, and only when
somebody must be sent on.
"""

import json
from collections.abc import Mapping

from millpond.catalog import coordinators, partitions, writers
from millpond.catalog.database import Transaction
from millpond.log import Log
from millpond.model.errors import MillpondError, NotOwner
from millpond.model.ids import TopicPartition

Addresses = Mapping[str, str]
"""Where each face of a broker is reached: `{"kafka": "host:port", "grpc": …, "http": …}`."""


class Owners:
    def __init__(self, log: Log) -> None:
        self._log = log

    async def explain(self, error: MillpondError, where: TopicPartition) -> MillpondError:
        """The error to answer with: one that says who owns the partition, if that is known."""
        if not isinstance(error, NotOwner):
            return error
        found = await self._log.read(lambda tx: _addresses(tx, where))
        return NotOwner(**owner_facts(found))


def owner_facts(addresses: Addresses) -> dict[str, str]:
    """For an error that sends a client on."""
    return {f"owner_{face}": address for face, address in addresses.items()}


def addresses_of_coordinator(tx: Transaction, group_id: str) -> Addresses:
    owner, _ = coordinators.owners(tx)[coordinators.shard_of(group_id)]
    return addresses_of_brokers(tx).get(owner or "", {})


def addresses_of_brokers(tx: Transaction) -> dict[str, Addresses]:
    """By session."""
    return {session: json.loads(address) for session, _, address in writers.living(tx) if address}


def _addresses(tx: Transaction, where: TopicPartition) -> Addresses:
    owner = next((row.owner for row in partitions.of_topic(tx, where.topic_id) if row.where == where), None)
    return addresses_of_brokers(tx).get(owner or "", {})
