"""The Kafka interface: implements the wire protocol of Apache Kafka, so that Kafka clients work unmodified."""

from millpond.frontends.kafka.call import Node, Services
from millpond.frontends.kafka.limits import KafkaLimits
from millpond.frontends.kafka.server import KafkaServer

__all__ = ["KafkaLimits", "KafkaServer", "Node", "Services"]
