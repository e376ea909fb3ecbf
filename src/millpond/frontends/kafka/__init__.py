"""The Kafka interface: implements the wire protocol of Apache Kafka, so that Kafka clients work unmodified."""

from millpond.frontends.kafka.call import Node, Services
from millpond.frontends.kafka.limits import KafkaLimits
from millpond.frontends.kafka.server import KafkaServer
from millpond.frontends.kafka.share_sessions import ShareSessions

__all__ = ["KafkaLimits", "KafkaServer", "Node", "Services", "ShareSessions"]
