"""kafka-python, all of it Python."""

import contextlib
import re
import socket
import warnings

from tests.clients.adapters.base import (
    FETCH_WAIT_MS,
    HEARTBEAT_MS,
    RECONNECT_MS,
    REQUEST_BYTES_MAX,
    Message,
    Refused,
    session_timeout_ms,
)

with warnings.catch_warnings():
    warnings.simplefilter(
        "ignore", DeprecationWarning
    )  # it reads its schemas by importlib.resources.read_text
    from kafka.admin import ConfigResource, ConfigResourceType
    from kafka.errors import KafkaError
    from kafka.net.inet import KafkaNetSocket
    from kafka.net.sasl.oauth import AbstractTokenProvider
    from kafka.structs import OffsetAndMetadata

    import kafka

ANSWER_SECONDS_MAX = 30.0
BATCH_MAX = 10_000
FIRST_JOIN_SECONDS = 5.0
"""A poll that ends while kafka-python 3.0 joins a group loses what that join brings: it begins to join anew or, if it
joined a second time because it had learnt of partitions meanwhile, waits for ever, without heartbeats."""


class ClosingSocket(socket.socket):
    """kafka-python 3.0 does not close the socket of a connection that is being made when the client is closed. Python
    would warn of it whenever it is collected, during any later test."""

    def __del__(self):
        with contextlib.suppress(AttributeError):  # it was never opened
            self.close()


class FixedToken(AbstractTokenProvider):
    """The token of OAUTHBEARER."""

    def __init__(self, token: str) -> None:
        self._token = token

    def token(self) -> str:
        return self._token


KafkaNetSocket.socket = lambda _, *address: ClosingSocket(*address)


def common(address: str) -> dict:
    return {
        "bootstrap_servers": address,
        "reconnect_backoff_ms": RECONNECT_MS,
        "reconnect_backoff_max_ms": 5 * RECONNECT_MS,
    }


def checked(function, *args, **named):
    try:
        return function(*args, **named)
    except KafkaError as error:
        raise Refused(getattr(error, "errno", -1), str(error)) from error


class PythonProducer:
    def __init__(self, address, codec, acks, idempotent, transactional_id):
        self._producer = kafka.KafkaProducer(
            **common(address),
            acks=acks,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent or transactional_id is not None,
            transactional_id=transactional_id,
            max_request_size=REQUEST_BYTES_MAX,
            linger_ms=5,
        )
        self._futures = []
        if transactional_id is not None:
            checked(self._producer.init_transactions)

    def send(self, topic, value, *, key=None, headers=(), timestamp=None, partition=0):
        self._futures.append(
            checked(
                self._producer.send,
                topic,
                value,
                key=key,
                headers=list(headers),
                partition=partition,
                timestamp_ms=timestamp,
            )
        )

    def flush(self):
        futures, self._futures = self._futures, []
        checked(self._producer.flush, ANSWER_SECONDS_MAX)
        return [checked(future.get, ANSWER_SECONDS_MAX).offset for future in futures]

    def begin(self):
        checked(self._producer.begin_transaction)

    def commit(self):
        checked(self._producer.commit_transaction)

    def abort(self):
        checked(self._producer.abort_transaction)

    def send_offsets(self, offsets, consumer):
        places = {
            kafka.TopicPartition(*place): OffsetAndMetadata(offset, "", -1)
            for place, offset in offsets.items()
        }
        checked(self._producer.send_offsets_to_transaction, places, consumer.library.group_metadata())

    def close(self):
        self._producer.close(timeout=ANSWER_SECONDS_MAX)


class Listener(kafka.ConsumerRebalanceListener):
    def __init__(self, consumer):
        self._consumer = consumer

    def on_partitions_revoked(self, revoked):
        pass

    def on_partitions_assigned(self, assigned):
        self._consumer.rebalances += 1


class PythonConsumer:
    def __init__(self, address, topics, group, instance_id, places, read_committed):
        self.rebalances = 0
        self.library = kafka.KafkaConsumer(
            **common(address),
            group_id=group,
            group_instance_id=instance_id,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed" if read_committed else "read_uncommitted",
            session_timeout_ms=session_timeout_ms(instance_id),
            heartbeat_interval_ms=HEARTBEAT_MS,
            fetch_max_wait_ms=FETCH_WAIT_MS,
            max_poll_records=BATCH_MAX,
        )
        if group is not None:
            self.library.subscribe(list(topics), listener=Listener(self))
        else:
            self.library.assign([kafka.TopicPartition(*place) for place in places])

    def poll(self, seconds):
        if not self.library.assignment():
            seconds = max(seconds, FIRST_JOIN_SECONDS)
        found = checked(self.library.poll, timeout_ms=int(seconds * 1000))
        return [_message(each) for batch in found.values() for each in batch]

    def commit(self):
        checked(self.library.commit)

    def committed(self, place):
        return checked(self.library.committed, kafka.TopicPartition(*place))

    def assignment(self):
        return frozenset((each.topic, each.partition) for each in self.library.assignment())

    def seek(self, place, offset):
        self.library.seek(kafka.TopicPartition(*place), offset)

    def offset_at(self, place, timestamp):
        asked = kafka.TopicPartition(*place)
        found = checked(self.library.offsets_for_times, {asked: timestamp})[asked]
        return found.offset if found is not None else None

    def close(self):
        self.library.close(autocommit=False)


def _message(record) -> Message:
    return Message(
        record.topic,
        record.partition,
        record.offset,
        record.key,
        record.value,
        tuple(record.headers),
        record.timestamp,
    )


class PythonAdmin:
    def __init__(self, address):
        self._admin = kafka.KafkaAdminClient(**common(address))

    def create_topic(self, name, partitions=1, configs=None):
        asked = {
            name: {"num_partitions": partitions, "replication_factor": 1, "configs": dict(configs or {})}
        }
        checked(self._admin.create_topics, asked)

    def add_partitions(self, name, total):
        checked(self._admin.create_partitions, {name: total})

    def delete_topic(self, name):
        checked(self._admin.delete_topics, [name])

    def topics(self):
        return {each["name"]: len(each["partitions"]) for each in self._admin.describe_topics()}

    def configs(self, name):
        return self._configs(ConfigResource(ConfigResourceType.TOPIC, name))

    def broker_configs(self, node_id):
        return self._configs(ConfigResource(ConfigResourceType.BROKER, str(node_id)))

    def _configs(self, resource):
        found = checked(self._admin.describe_configs, [resource], config_filter="all")
        [by_name] = found.values()
        [configs] = by_name.values()
        return {name: config["value"] for name, config in configs.items()}

    def alter(self, name, key, value):
        resource = ConfigResource(ConfigResourceType.TOPIC, name, {key: value})
        said = checked(self._admin.alter_configs, [resource])["topic"][name]
        if said != "OK":  # it does not raise: "[Error 40] InvalidConfigurationError: …"
            raise Refused(int(re.match(r"\[Error (\d+)\]", said)[1]), said)

    def delete_records(self, place, before):
        checked(self._admin.delete_records, {kafka.TopicPartition(*place): before})

    def close(self):
        self._admin.close()


class KafkaPython:
    name = "kafka-python"

    def producer(self, address, *, codec="none", acks=-1, idempotent=False, transactional_id=None):
        return PythonProducer(address, codec, acks, idempotent, transactional_id)

    def consumer(self, address, *, topics=(), group=None, instance_id=None, places=(), read_committed=False):
        return PythonConsumer(address, topics, group, instance_id, places, read_committed)

    def admin(self, address):
        return PythonAdmin(address)
