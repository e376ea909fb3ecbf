"""confluent-kafka, which is librdkafka."""

import contextlib
from functools import partial
from typing import Any

import confluent_kafka as library
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)
from tests.clients.adapters.base import (
    FETCH_WAIT_MS,
    HEARTBEAT_MS,
    RECONNECT_MS,
    REQUEST_BYTES_MAX,
    Message,
    Place,
    Refused,
    session_timeout_ms,
)

ANSWER_SECONDS_MAX = 30.0
BATCH_MAX = 10_000
NO_OFFSET = -1


def common(address: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": address,
        "reconnect.backoff.ms": RECONNECT_MS,
        "reconnect.backoff.max.ms": 5 * RECONNECT_MS,
        "log_level": 2,
    }


def refused(error: library.KafkaError) -> Refused:
    return Refused(error.code(), error.str())


def is_final(error: library.KafkaError) -> bool:
    """Whether it is the broker's, and the library does not try again by itself. After a fatal error it does nothing
    more."""
    return error.code() == library.KafkaError._FATAL or (error.code() >= 0 and not error.retriable())


def checked(function, *args, **named):
    try:
        return function(*args, **named)
    except library.KafkaException as error:
        raise refused(error.args[0]) from error


class ConfluentProducer:
    def __init__(self, address, codec, acks, idempotent, transactional_id):
        config = common(address) | {
            "compression.type": codec,
            "acks": acks,
            "linger.ms": 5,
            "message.max.bytes": REQUEST_BYTES_MAX,
            "enable.idempotence": idempotent or transactional_id is not None,
        }
        if transactional_id is not None:
            config["transactional.id"] = transactional_id
        self._producer = library.Producer(config)
        self._answers: list[int | Refused | None] = []
        if transactional_id is not None:
            checked(self._producer.init_transactions, ANSWER_SECONDS_MAX)

    def send(self, topic, value, *, key=None, headers=(), timestamp=None, partition=0):
        self._answers.append(None)
        answered = partial(self._answered, self._answers, len(self._answers) - 1)
        named = {} if timestamp is None else {"timestamp": timestamp}
        while True:
            try:
                self._producer.produce(topic, value, key, partition, answered, headers=list(headers), **named)
                break
            except BufferError:
                self._producer.poll(0.05)
        self._producer.poll(0)

    @staticmethod
    def _answered(answers, place, error, message):
        if error is not None:
            answers[place] = refused(error)
        else:
            answers[place] = NO_OFFSET if message.offset() is None else message.offset()

    def flush(self):
        left = self._producer.flush(ANSWER_SECONDS_MAX)
        assert left == 0, f"{left} messages were not answered"
        answers, self._answers = self._answers, []
        for answer in answers:
            if isinstance(answer, Refused):
                raise answer
        return answers

    def begin(self):
        checked(self._producer.begin_transaction)

    def commit(self):
        checked(self._producer.commit_transaction, ANSWER_SECONDS_MAX)

    def abort(self):
        checked(self._producer.abort_transaction, ANSWER_SECONDS_MAX)

    def send_offsets(self, offsets, consumer):
        places = [library.TopicPartition(*place, offset) for place, offset in offsets.items()]
        metadata = consumer.library.consumer_group_metadata()
        checked(self._producer.send_offsets_to_transaction, places, metadata, ANSWER_SECONDS_MAX)

    def close(self):
        with contextlib.suppress(library.KafkaException):  # one that was fenced has nothing more to send
            self._producer.flush(ANSWER_SECONDS_MAX)


class ConfluentConsumer:
    def __init__(self, address, topics, group, instance_id, places, read_committed, protocol):
        config = common(address) | {
            "group.id": group or "nobody",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed" if read_committed else "read_uncommitted",
            "fetch.wait.max.ms": FETCH_WAIT_MS,
            "fetch.error.backoff.ms": FETCH_WAIT_MS,
            **(protocol or classic(instance_id)),
        }
        if instance_id is not None:
            config["group.instance.id"] = instance_id
        self.rebalances = 0
        self.assigned: list[frozenset[Place]] = []
        """What each callback has added to the assignment, or has removed from it."""
        self.revoked: list[frozenset[Place]] = []
        self.library = library.Consumer(config)
        if group is not None:
            self.library.subscribe(list(topics), on_assign=self._assigned, on_revoke=self._revoked)
        else:
            self.library.assign([library.TopicPartition(*place, 0) for place in places])

    def _assigned(self, _, partitions):
        self.rebalances += 1
        self.assigned += [_places(partitions)] if partitions else []

    def _revoked(self, _, partitions):
        self.revoked += [_places(partitions)] if partitions else []

    def poll(self, seconds):
        first = self.library.poll(seconds)
        found = []
        for message in [] if first is None else [first, *self.library.consume(BATCH_MAX, 0)]:
            if message.error() is None:
                found.append(_message(message))
            elif is_final(message.error()):
                raise refused(message.error())
        return found

    def commit(self):
        checked(self.library.commit, asynchronous=False)

    def committed(self, place):
        [found] = checked(self.library.committed, [library.TopicPartition(*place)], ANSWER_SECONDS_MAX)
        return found.offset if found.offset >= 0 else None

    def assignment(self):
        return _places(self.library.assignment())

    def seek(self, place, offset):
        checked(self.library.seek, library.TopicPartition(*place, offset))

    def offset_at(self, place, timestamp):
        asked = [library.TopicPartition(*place, timestamp)]
        [found] = checked(self.library.offsets_for_times, asked, ANSWER_SECONDS_MAX)
        return found.offset if found.offset >= 0 else None

    def close(self):
        self.library.close()


def classic(instance_id: str | None) -> dict[str, Any]:
    """What a member of the classic protocol chooses itself."""
    return {
        "session.timeout.ms": session_timeout_ms(instance_id),
        "heartbeat.interval.ms": HEARTBEAT_MS,
    }


def _places(partitions) -> frozenset[Place]:
    return frozenset((each.topic, each.partition) for each in partitions)


def _message(message) -> Message:
    return Message(
        message.topic(),
        message.partition(),
        message.offset(),
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
        message.timestamp()[1],
    )


class ConfluentAdmin:
    def __init__(self, address):
        self._admin = AdminClient(common(address))

    def create_topic(self, name, partitions=1, configs=None):
        topic = NewTopic(name, partitions, 1, config=dict(configs or {}))
        checked(self._admin.create_topics([topic])[name].result)

    def add_partitions(self, name, total):
        checked(self._admin.create_partitions([NewPartitions(name, total)])[name].result)

    def delete_topic(self, name):
        checked(self._admin.delete_topics([name])[name].result)

    def topics(self):
        known = self._admin.list_topics(timeout=ANSWER_SECONDS_MAX).topics
        return {name: len(topic.partitions) for name, topic in known.items()}

    def configs(self, name):
        return self._configs(ConfigResource(ConfigResource.Type.TOPIC, name))

    def broker_configs(self, node_id):
        return self._configs(ConfigResource(ConfigResource.Type.BROKER, str(node_id)))

    def _configs(self, resource):
        found = checked(self._admin.describe_configs([resource])[resource].result)
        return {name: entry.value for name, entry in found.items()}

    def alter(self, name, key, value):
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[entry])
        checked(self._admin.incremental_alter_configs([resource])[resource].result)

    def delete_records(self, place, before):
        asked = library.TopicPartition(*place, before)
        checked(self._admin.delete_records([asked])[asked].result)

    def close(self):
        pass


class Confluent:
    name = "confluent-kafka"

    def producer(self, address, *, codec="none", acks=-1, idempotent=False, transactional_id=None):
        return ConfluentProducer(address, codec, acks, idempotent, transactional_id)

    def consumer(self, address, *, topics=(), group=None, instance_id=None, places=(), read_committed=False):
        return ConfluentConsumer(address, topics, group, instance_id, places, read_committed, {})

    def admin(self, address):
        return ConfluentAdmin(address)


class ConfluentConsumerProtocol(Confluent):
    """Its consumers use the consumer protocol: the broker says how often they send heartbeats."""

    name = "confluent-kafka, consumer protocol"

    def consumer(
        self,
        address,
        *,
        topics=(),
        group=None,
        instance_id=None,
        places=(),
        read_committed=False,
        assignor=None,
    ):
        protocol = {"group.protocol": "consumer"}
        if assignor is not None:
            protocol["group.remote.assignor"] = assignor
        return ConfluentConsumer(address, topics, group, instance_id, places, read_committed, protocol)
