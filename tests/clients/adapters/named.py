"""Client libraries by name. Each is imported when it is asked for: one of them takes a second."""

from importlib import import_module

from tests.clients.adapters.base import Client

PLACES = {
    "confluent-kafka": ("confluent", "Confluent"),
    "kafka-python": ("kafka_python", "KafkaPython"),
    "aiokafka": ("aio", "Aiokafka"),
}


def client_named(name: str) -> Client:
    module, kind = PLACES[name]
    made: Client = getattr(import_module(f"tests.clients.adapters.{module}"), kind)()
    return made
