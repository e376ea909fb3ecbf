"""Brokers to attack through gRPC, as processes whose memory is measured."""

from tests.hostile.rpc.conftest import attack_results, attacked_broker
from tests.hostile.rpc.consumers import besieged_queues, queues

__all__ = ["attack_results", "attacked_broker", "besieged_queues", "queues"]
