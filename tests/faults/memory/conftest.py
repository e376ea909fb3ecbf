"""Brokers to attack through gRPC, as processes whose memory is measured."""

from tests.hostile.rpc.conftest import besieged, sieges
from tests.hostile.rpc.consumers import besieged_queues, queues

__all__ = ["besieged", "besieged_queues", "queues", "sieges"]
