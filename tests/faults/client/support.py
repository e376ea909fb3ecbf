"""What the tests of the client library under faults have in common."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests.ports import free_address

from millpond import Consumer
from millpond.model.errors import MillpondError

STOP_SECONDS_MAX = 20.0


class BrokerProcess:
    """A broker as a process of its own, which can be killed and started again on the same directory and port."""

    def __init__(self, folder, **settings):
        self.address = free_address()
        self._folder = folder
        self._settings = {"kafka_listen": "", "http_listen": "", "grpc_listen": self.address, **settings}
        self._process = None

    def start(self, **settings):
        """Returns when it is ready. Settings that are given here hold from now on."""
        self._settings.update(settings)
        command = [str(Path(sys.executable).with_name("millpond")), "serve", "--json"]
        command += ["--data-dir", str(self._folder / "data")]
        for name, value in self._settings.items():
            command += ["--set", f"{name}={value}"]
        with (self._folder / "broker.log").open("a") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        line = self._process.stdout.readline()
        assert line, f"the broker did not start:\n{(self._folder / 'broker.log').read_text()}"
        assert "grpc" in json.loads(line)["listeners"]

    def pause(self):
        os.kill(self._process.pid, signal.SIGSTOP)

    def resume(self):
        os.kill(self._process.pid, signal.SIGCONT)

    def kill(self):
        self._end(signal.SIGKILL)

    def stop(self):
        if self._process is not None:
            self._end(signal.SIGTERM)

    def _end(self, how):
        process, self._process = self._process, None
        os.kill(process.pid, how)
        process.wait(STOP_SECONDS_MAX)
        process.stdout.close()


class Ledger:
    """What producers were told: where each acknowledged message went, and what may be stored all the same."""

    def __init__(self):
        self.placed = {}
        self.refused = Counter()

    def note(self, value, sent):
        try:
            self.placed[value] = sent.result()
        except MillpondError as error:
            self.refused[type(error).__name__] += 1

    async def submit(self, producer, value):
        """None if it was refused at once, such as by a broker that says nothing of the topic in time."""
        try:
            return await producer.submit(value)
        except MillpondError as error:
            self.refused[type(error).__name__] += 1
            return None

    async def note_async(self, value, future):
        try:
            self.placed[value] = await future
        except MillpondError as error:
            self.refused[type(error).__name__] += 1

    def check(self, stored):
        """`stored` are the messages of a topic. Returns (lost, misplaced, duplicates, disordered)."""
        where = {message.value: (message.partition, message.number) for message in stored}
        lost = sum(value not in where for value in self.placed)
        misplaced = sum(value in where and where[value] != tuple(at) for value, at in self.placed.items())
        return lost, misplaced, len(stored) - len(where), disordered(stored)


def disordered(stored):
    """How often a producer's later message stands before an earlier one in its partition. Values are b"name:number"."""
    last, wrong = {}, 0
    for message in stored:
        name, number = message.value.split(b":")[:2]
        key = name, message.partition
        wrong += int(number) <= last.get(key, -1)
        last[key] = int(number)
    return wrong


def read_all(topic, address):
    """Every message of a topic, to the end."""
    stored = []
    with Consumer(topic, address=address) as consumer:
        while True:
            messages = consumer.poll(messages_max=10_000).messages
            if not messages:
                return stored
            stored.extend(messages)


async def in_thread(function, *arguments):
    return await asyncio.to_thread(function, *arguments)
