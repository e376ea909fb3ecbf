"""The clients without an event loop: many threads, forks, ends of processes."""

import asyncio
import itertools
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from millpond import Admin, Consumer, Producer
from millpond.client.message import Placed, Sent
from millpond.client.topic_producer import TopicProducer
from millpond.model.errors import InvalidArgument, RecordTooLarge, Stopping, UnknownTopic, Unreachable
from millpond.testing import Faults, running_broker

THREADS = 16
EACH = 300
NOBODY = "127.0.0.1:1"


class ThreadBroker:
    """A broker on a loop and thread of its own, as the sync clients would find it."""

    def __init__(self, **settings):
        self._ready, self._end = threading.Event(), None
        self._settings = settings
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="broker")
        self._thread.start()
        self._ready.wait(30)

    async def _run(self):
        self._end, self._loop = asyncio.Event(), asyncio.get_running_loop()
        async with running_broker(grpc=True, **self._settings) as broker:
            self.address = broker.listeners["grpc"]
            self._ready.set()
            await self._end.wait()

    def close(self):
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()


@pytest.fixture
def faults():
    return Faults()


@pytest.fixture
def address(faults):
    broker = ThreadBroker(faults=faults, inline_bytes_max=0)
    yield broker.address
    broker.close()


def in_threads(work, count=THREADS):
    failures = []

    def run(number):
        try:
            work(number)
        except BaseException as error:  # noqa: BLE001  # the test shows it
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not [thread for thread in threads if thread.is_alive()], "somebody waits for ever"
    assert failures == []


def read_all(topic, address):
    found = []
    with Consumer(topic, address=address) as consumer:
        while messages := consumer.poll(messages_max=10_000).messages:
            found += messages
    return found


# -- producers -------------------------------------------------------------------------------------------------------


def test_sixteen_threads_on_one_producer(address):
    with Producer("t", address=address) as producer:
        sents = {}

        def work(thread):
            for number in range(EACH):
                value = b"%d:%d" % (thread, number)
                sents[value] = producer.submit(value)

        in_threads(work)
        places = {value: sent.result(30) for value, sent in sents.items()}
    found = read_all("t", address)
    assert {m.value: Placed(0, m.number) for m in found} == places
    assert len(found) == THREADS * EACH
    for thread in range(THREADS):
        own = [int(m.value.split(b":")[1]) for m in found if m.value.startswith(b"%d:" % thread)]
        assert own == list(range(EACH))


def test_the_hand_over_never_forgets_anybody(address):
    """Each waits for its own before the next: whoever is forgotten would wait for ever."""
    with Producer("t", address=address, timeout=30.0) as producer:

        def work(_):
            for _ in range(100):
                producer.submit(b"x").result(30)

        in_threads(work, 4)
        assert producer.send(b"last").number == 401


def test_a_hand_over_that_finds_nothing_leaves_the_door_open(address):
    """Somebody else took what this one was called for."""
    with Producer("t", address=address) as producer:
        producer.send(b"first")
        producer._inboxes.of("t")._is_draining = True
        producer.flush()
        assert producer.submit(b"second").result(30).number == 2


def test_first_uses_from_many_threads_share_one_loop():
    script = """
import threading
from millpond.client import background
loops, barrier = [], threading.Barrier(16)
def first():
    barrier.wait()
    loops.append(background.background.loop())
threads = [threading.Thread(target=first) for _ in range(16)]
[thread.start() for thread in threads]; [thread.join() for thread in threads]
assert len(set(loops)) == 1, loops
assert sum(thread.name == "millpond-client" for thread in threading.enumerate()) == 1
"""
    assert run_script(script).returncode == 0


def test_close_sends_what_was_submitted(address):
    producer = Producer("t", address=address)
    sents = [producer.submit(b"x") for _ in range(500)]
    producer.close()
    assert [sent.result(0).number for sent in sents] == list(range(1, 501))
    producer.close()
    with pytest.raises(Stopping, match="closed"):
        producer.send(b"x")


def test_leaving_because_of_an_error_still_sends_what_was_submitted(address):
    sents = []

    def fail():
        with Producer("t", address=address) as producer:
            sents.append(producer.submit(b"x"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert sents[0].result(0).number == 1


def test_abort_fails_what_is_not_answered(address, faults):
    producer = Producer("t", address=address, buffer_bytes_max=4_000)
    producer.send(b"x")
    held = faults.hold("append")
    sents = [producer.submit(b"x" * 1_000) for _ in range(4)]
    held.wait_reached()
    producer.abort()
    held.release()
    for sent in sents:
        with pytest.raises(Stopping):
            sent.result(30)


def test_what_is_too_large_is_refused_alone(address):
    with Producer("t", address=address) as producer:
        before, wrong, after = (producer.submit(b"x" * size) for size in (1, 2_000_000, 1))
        assert [before.result(30).number, after.result(30).number] == [1, 2]
        for _ in range(2):
            with pytest.raises(RecordTooLarge):
                wrong.result(30)


def test_a_stalled_broker_makes_submit_wait(address, faults):
    """Bounded, however many threads: what is held, what is handed over, and one message each."""
    limit, size = 20_000, 1_000
    with Producer("t", address=address, buffer_bytes_max=limit) as producer:
        producer.send(b"x")
        held = faults.hold("append")
        sents = []
        threads = [
            threading.Thread(target=lambda: sents.extend(producer.submit(b"x" * size) for _ in range(50)))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        held.wait_reached()
        assert producer._producer._buffer.held_bytes <= limit + 1_036
        assert producer._inboxes.of("t")._inbox_bytes <= limit + 4 * 1_036
        assert any(thread.is_alive() for thread in threads)
        held.release()
        for thread in threads:
            thread.join(30)
    assert len({sent.result(0).number for sent in sents}) == 200


def test_nobody_there():
    with Producer("t", address=NOBODY, timeout=2.5) as producer:
        with pytest.raises(Unreachable):
            producer.send(b"x")
        sents = [producer.submit(b"x") for _ in range(10)]
    for sent in sents:
        with pytest.raises(Unreachable):
            sent.result(0)


def test_however_many_messages_wait_for_a_broker_that_is_not_there_they_fail_in_time(monkeypatch):
    """By the attempts to reach it, each of which takes a timeout, and not by the clock."""
    attempts, ready = [], TopicProducer.ready

    async def counted(producer):
        attempts.append(producer)
        await ready(producer)

    monkeypatch.setattr(TopicProducer, "ready", counted)
    with Producer("t", address=NOBODY, timeout=1.0) as producer:
        sents = [producer.submit(b"x") for _ in range(5_000)]
        for sent in sents:
            with pytest.raises(Unreachable):
                sent.result(60)
    assert len(attempts) < 10, "and not one for each 200 of them"


def test_sent_hears_whatever_comes_first():
    for _ in range(200):
        sent, placed = Sent(), Placed(0, 1)
        telling = threading.Thread(target=sent.set_result, args=(placed,))
        telling.start()
        assert sent.result(30) == placed
        telling.join()
    with pytest.raises(TimeoutError):
        Sent().result(0.01)


# -- consumers and administration ------------------------------------------------------------------------------------


def test_several_threads_on_one_consumer(address):
    with Producer("t", address=address) as producer:
        producer.send_many([b"%d" % number for number in range(500)])
    seen = []
    with Consumer("t", address=address) as consumer:
        in_threads(lambda _: [seen.extend(consumer.poll(messages_max=7).messages) for _ in range(10)], 8)
        assert consumer.read_from == 501
        consumer.commit()
        assert consumer.positions() == {0: 501}
    assert sorted(message.number for message in seen) == list(range(1, 501))


def test_iterating(address):
    with Producer("t", address=address) as producer, Consumer("t", address=address) as consumer:
        producer.send(b"a")
        messages = iter(consumer)
        assert next(messages).value == b"a"
        producer.send(b"b")
        assert next(messages).value == b"b"


def test_an_iteration_that_ends_early_skips_nothing(address):
    with Producer("t", address=address) as producer:
        producer.send_many([b"a", b"b", b"c"])
    with Consumer("t", group="g", address=address) as consumer:
        messages = iter(consumer)  # still open when the consumer is closed
        assert [next(messages).value, next(messages).value] == [b"a", b"b"]
        assert consumer.read_from == 3
    with Consumer("t", group="g", address=address) as consumer:
        for message in consumer:
            assert message.value == b"b"
            break
        assert [message.value for message in consumer.poll().messages] == [b"c"]
    with Consumer("t", group="g", address=address) as consumer:
        assert consumer.positions() == {0: 4}


def test_threads_that_iterate_get_different_messages(address):
    with Producer("t", address=address) as producer:
        producer.send_many([b"%d" % number for number in range(400)])
    seen = []
    with Consumer("t", address=address) as consumer:
        in_threads(lambda _: seen.extend(itertools.islice(iter(consumer), 100)), 4)
    assert sorted(message.number for message in seen) == list(range(1, 401))


def test_a_poll_that_is_interrupted_takes_nothing(address):
    """Ctrl-C in the main thread, while a poll waits: what comes later is not lost."""
    script = f"""
import os, signal, threading
from millpond import Consumer, Producer
producer = Producer("t", address={address!r})
producer.send(b"a")
consumer = Consumer("t", read_from=2, address={address!r})
consumer.positions()
done = threading.Event()
def interrupt():  # again and again: a signal that comes just before a thread begins to wait does not wake it
    while not done.wait(1.0):
        os.kill(os.getpid(), signal.SIGINT)
try:
    threading.Thread(target=interrupt, daemon=True).start()
    consumer.poll(wait=60.0)
except KeyboardInterrupt:
    done.set()
    print("interrupted")
producer.send(b"b")
print([message.value for message in consumer.poll(wait=30.0).messages])
"""
    assert run_script(script).stdout.split("\n")[:2] == ["interrupted", "[b'b']"]


def test_admin_from_several_threads(address):
    with Admin(address=address) as admin:
        in_threads(lambda number: admin.create_topic(f"t{number}"))
        assert len(admin.list_topics()) == THREADS
        with pytest.raises(UnknownTopic):
            admin.describe_topic("nothing")
    with pytest.raises(Stopping, match="closed"):
        admin.list_topics()


# -- processes -------------------------------------------------------------------------------------------------------


def run_script(script):
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    assert "never" not in done.stderr, done.stderr
    return done


@pytest.mark.parametrize("busy", [False, True])
def test_a_process_that_forgot_to_close_ends(address, busy):
    use = "[producer.submit(b'x' * 1000) for _ in range(3000)]" if busy else "producer.send(b'x')"
    script = f"""
from millpond import Consumer, Producer
producer = Producer("t", address={address!r})
consumer = Consumer("t", address={address!r})
producer.send(b"x")
consumer.poll()
{use}
print("end")
"""
    assert run_script(script).stdout == "end\n"


FORK = """
import os, sys
from millpond import Consumer, Producer
from millpond.model.errors import InvalidRequest
USE
pid = os.fork()
if pid == 0:
    code = 1
    try:
        CHILD
    except InvalidRequest as error:
        code = 7 if "forked" in str(error) else 8
    os._exit(code)
_, status = os.waitpid(pid, 0)
print(os.waitstatus_to_exitcode(status))
AFTER
"""


def forked(address, use, child, after=""):
    script = FORK.replace("USE", use).replace("CHILD", child).replace("AFTER", after)
    return run_script(script.replace("ADDRESS", repr(address))).stdout.split()


USE = "producer = Producer('t', address=ADDRESS); producer.send(b'x')"


@pytest.mark.parametrize(
    "child",
    [
        "producer.send(b'x')",
        "producer.submit(b'x').result()",
        "producer.close()",
        "Producer('t', address=ADDRESS).send(b'x')",
        "Consumer('t', address=ADDRESS).poll()",
    ],
)
def test_a_child_forked_from_a_process_with_clients_is_told_so(address, child):
    assert forked(address, USE, child, "print(producer.send(b'y').number)") == ["7", "2"]


def test_a_child_forked_before_any_client_was_made_is_not_concerned(address):
    child = "code = Producer('t', address=ADDRESS).send(b'x').number - 1"
    assert forked(address, "", child, USE) == ["0"]


def test_one_producer_sends_to_several_topics_from_several_threads(address):
    def send(producer, topic):
        sents = [producer.submit(b"%d" % number, topic=topic) for number in range(200)]
        assert [sent.result(30).number for sent in sents] == list(range(1, 201))

    topics = [f"many-{number}" for number in range(4)]
    with Producer(address=address) as producer, ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(send, producer, topic) for topic in topics]:
            done.result(60)
        producer.flush()
        with pytest.raises(InvalidArgument, match="topic=None"):
            producer.send(b"x")
    for topic in topics:
        with Consumer(topic, address=address) as consumer:
            found = consumer.poll(30).messages
            assert [message.value for message in found] == [b"%d" % number for number in range(200)]
