"""Client libraries by name. Each is imported when it is asked for: one of them takes a second."""

from importlib import import_module

from tests.clients.adapters.base import Client

PLACES = {
    "confluent-kafka": ("confluent", "Confluent"),
    "kafka-python": ("kafka_python", "KafkaPython"),
    "aiokafka": ("aio", "Aiokafka"),
}
CONSUMER_PROTOCOL = "confluent-kafka, consumer protocol"
VARIANTS = {CONSUMER_PROTOCOL: ("confluent", "ConfluentConsumerProtocol")}
"""The only one of them that supports the consumer protocol (KIP-848)."""


def client_named(name: str) -> Client:
    module, kind = (PLACES | VARIANTS)[name]
    made: Client = getattr(import_module(f"tests.clients.adapters.{module}"), kind)()
    return made
