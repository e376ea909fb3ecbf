"""aiokafka, on an event loop of its own in a thread of its own."""

import asyncio
import threading
from functools import cache

import aiokafka
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, for_code
from tests.clients.adapters.base import (
    FETCH_WAIT_MS,
    HEARTBEAT_MS,
    RECONNECT_MS,
    REQUEST_BYTES_MAX,
    Message,
    Refused,
    session_timeout_ms,
)

ANSWER_SECONDS_MAX = 30.0
BATCH_MAX = 10_000
NO_OFFSET = -1


@cache
def loop() -> asyncio.AbstractEventLoop:
    made = asyncio.new_event_loop()
    threading.Thread(target=made.run_forever, name="aiokafka", daemon=True).start()
    return made


def run(function, *args, **named):
    """Call it on the loop and wait; what it returns may be a coroutine."""

    async def call():
        result = function(*args, **named)
        return await result if asyncio.iscoroutine(result) else result

    try:
        return asyncio.run_coroutine_threadsafe(call(), loop()).result(ANSWER_SECONDS_MAX)
    except KafkaError as error:
        raise Refused(getattr(error, "errno", -1), str(error)) from error


def started(thing):
    """Start it; what cannot be started is stopped, or it would complain when it is collected."""
    try:
        run(thing.start)
    except Refused:
        run(thing.stop)
        raise
    return thing


class AioProducer:
    def __init__(self, address, codec, acks, idempotent, transactional_id):
        named = {"transactional_id": transactional_id} if transactional_id is not None else {}
        self._producer = run(
            aiokafka.AIOKafkaProducer,
            bootstrap_servers=address,
            acks=acks,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent or transactional_id is not None,
            max_request_size=REQUEST_BYTES_MAX,
            linger_ms=5,
            retry_backoff_ms=RECONNECT_MS,
            **named,
        )
        self._futures = []
        started(self._producer)

    def send(self, topic, value, *, key=None, headers=(), timestamp=None, partition=0):
        future = run(
            self._producer.send,
            topic,
            value,
            key=key,
            headers=list(headers),
            timestamp_ms=timestamp,
            partition=partition,
        )
        self._futures.append(future)

    def flush(self):
        futures, self._futures = self._futures, []

        async def answers():
            await self._producer.flush()
            return [await future for future in futures]

        return [answer.offset if answer is not None else NO_OFFSET for answer in run(answers)]

    def begin(self):
        run(self._producer.begin_transaction)

    def commit(self):
        run(self._producer.commit_transaction)

    def abort(self):
        run(self._producer.abort_transaction)

    def send_offsets(self, offsets, consumer):
        places = {aiokafka.TopicPartition(*place): offset for place, offset in offsets.items()}
        run(self._producer.send_offsets_to_transaction, places, consumer.group)

    def close(self):
        run(self._producer.stop)


class Listener(aiokafka.ConsumerRebalanceListener):
    def __init__(self, consumer):
        self._consumer = consumer

    def on_partitions_revoked(self, revoked):
        pass

    def on_partitions_assigned(self, assigned):
        self._consumer.rebalances += 1


class AioConsumer:
    def __init__(self, address, topics, group, instance_id, places, read_committed):
        self.group = group
        self.rebalances = 0
        self._consumer = run(
            aiokafka.AIOKafkaConsumer,
            bootstrap_servers=address,
            group_id=group,
            group_instance_id=instance_id,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed" if read_committed else "read_uncommitted",
            session_timeout_ms=session_timeout_ms(instance_id),
            heartbeat_interval_ms=HEARTBEAT_MS,
            fetch_max_wait_ms=FETCH_WAIT_MS,
            retry_backoff_ms=RECONNECT_MS,
        )
        if group is not None:
            run(self._consumer.subscribe, list(topics), listener=Listener(self))
        else:
            run(self._consumer.assign, [aiokafka.TopicPartition(*place) for place in places])
        started(self._consumer)

    def poll(self, seconds):
        found = run(self._consumer.getmany, timeout_ms=int(seconds * 1000), max_records=BATCH_MAX)
        return [_message(each) for batch in found.values() for each in batch]

    def commit(self):
        run(self._consumer.commit)

    def committed(self, place):
        return run(self._consumer.committed, aiokafka.TopicPartition(*place))

    def assignment(self):
        return frozenset((each.topic, each.partition) for each in run(self._consumer.assignment))

    def seek(self, place, offset):
        run(self._consumer.seek, aiokafka.TopicPartition(*place), offset)

    def offset_at(self, place, timestamp):
        asked = aiokafka.TopicPartition(*place)
        found = run(self._consumer.offsets_for_times, {asked: timestamp})[asked]
        return found.offset if found is not None else None

    def close(self):
        run(self._consumer.stop)


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


class AioAdmin:
    def __init__(self, address):
        self._admin = run(AIOKafkaAdminClient, bootstrap_servers=address)
        run(self._admin.start)

    def create_topic(self, name, partitions=1, configs=None):
        topic = NewTopic(name, partitions, 1, topic_configs=dict(configs or {}))
        answer = run(self._admin.create_topics, [topic])
        _check(answer.topic_errors)

    def add_partitions(self, name, total):
        run(self._admin.create_partitions, {name: NewPartitions(total)})

    def delete_topic(self, name):
        _check(run(self._admin.delete_topics, [name]).topic_error_codes)

    def topics(self):
        return {each["topic"]: len(each["partitions"]) for each in run(self._admin.describe_topics)}

    def configs(self, name):
        return self._configs(ConfigResource(ConfigResourceType.TOPIC, name))

    def broker_configs(self, node_id):
        return self._configs(ConfigResource(ConfigResourceType.BROKER, str(node_id)))

    def _configs(self, resource):
        [answer] = run(self._admin.describe_configs, [resource])
        [(code, message, _, _, entries)] = answer.resources
        if code:
            raise Refused(code, message or "")
        return {entry[0]: entry[1] for entry in entries}

    def alter(self, name, key, value):
        """It can only replace all configs."""
        resource = ConfigResource(ConfigResourceType.TOPIC, name, {key: value})
        [answer, *_] = run(self._admin.alter_configs, [resource])
        [(code, message, *_)] = answer.resources
        if code:
            raise Refused(code, message or "")

    def delete_records(self, place, before):
        run(self._admin.delete_records, {aiokafka.TopicPartition(*place): RecordsToDelete(before)})

    def close(self):
        run(self._admin.close)


def _check(rows) -> None:
    for name, code, *_ in rows:
        if code:
            raise Refused(code, f"{name}: {for_code(code).__name__}")


class Aiokafka:
    name = "aiokafka"

    def producer(self, address, *, codec="none", acks=-1, idempotent=False, transactional_id=None):
        return AioProducer(address, codec, acks, idempotent, transactional_id)

    def consumer(self, address, *, topics=(), group=None, instance_id=None, places=(), read_committed=False):
        return AioConsumer(address, topics, group, instance_id, places, read_committed)

    def admin(self, address):
        return AioAdmin(address)
