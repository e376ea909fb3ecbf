"""Three consumers of a key-shared subscription, 200 keys, and everything that can happen to them: refusals, deliveries
that nobody answers, consumers that die, leave and join, and a broker that is killed with kill -9 and started again.

Held at the end: every message was acknowledged, exactly once as far as answers go; the messages of a key in their
order; none was given out before its predecessor was acknowledged (O1, X1); what was acknowledged never came again.
"""

import collections
import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.ports import free_port
from tests.seeds.processes import environment

from millpond import Admin, Producer

CONSUMER = Path(__file__).parent / "chaos" / "consumer.py"
KEYS = 200
CONSUMERS = 3
CONFIG = {
    "mode": "key_shared",
    "ack_timeout_ms": "700",
    "attempts_max": "1000",
    "backoff_ms": "20",
    "backoff_max_ms": "200",
}
PATIENCE_S = 120
FATES = ("killed", "left", "kills of the broker")
FATES_WEIGHTS = (12, 13, 15, 60)


class Troupe:
    """The broker, its consumers, and what they said."""

    def __init__(self, folder, seed):
        self.folder, self.dice = folder, random.Random(seed)
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.files, self.consumers, self.counts = [], {}, collections.Counter()
        self.broker = None

    def start_broker(self):
        command = [
            sys.executable,
            "-m",
            "millpond",
            "serve",
            "--json",
            "--data-dir",
            str(self.folder / "data"),
        ]
        command += ["--set", f"grpc_listen={self.address}"]
        for interface in ("kafka", "http"):
            command += ["--set", f"{interface}_listen=127.0.0.1:0"]
        log = (self.folder / "broker.log").open("ab")
        self.broker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=environment())
        log.close()
        assert b"listeners" in self.broker.stdout.readline(), (self.folder / "broker.log").read_text()[-2000:]

    def kill_broker(self):
        self.broker.kill()
        self.broker.wait()
        self.broker.stdout.close()
        self.counts["kills of the broker"] += 1
        self.start_broker()

    def join(self):
        number = len(self.files)
        file = self.folder / f"consumer-{number}.jsonl"
        self.files.append(file)
        command = [
            sys.executable,
            str(CONSUMER),
            self.address,
            f"consumer-{number}",
            str(self.dice.randrange(10**9)),
        ]
        with file.open("wb") as out, file.with_suffix(".log").open("wb") as log:
            self.consumers[number] = subprocess.Popen(command, stdout=out, stderr=log, env=environment())

    def act(self):
        """Something happens to somebody."""
        for number, process in list(self.consumers.items()):
            if process.poll() is not None:
                del self.consumers[number]
                self.counts["died by themselves"] += process.returncode == 9
        fate = self.missing() or self.dice.choices([*FATES, "nothing"], FATES_WEIGHTS)[0]
        if fate == "kills of the broker":
            self.kill_broker()
        elif fate != "nothing" and self.consumers:
            process = self.consumers.pop(self.dice.choice(list(self.consumers)))
            process.send_signal(signal.SIGKILL if fate == "killed" else signal.SIGTERM)
            self.counts[fate] += 1
            process.wait()
        while len(self.consumers) < CONSUMERS:
            self.join()

    def missing(self):
        """What has not happened to anybody yet."""
        return next((fate for fate in FATES if not self.counts[fate]), None)

    def end(self):
        for process in [*self.consumers.values(), self.broker]:
            process.kill()
            process.wait()
        self.broker.stdout.close()

    def events(self):
        found = []
        for file in self.files:
            lines = file.read_text().splitlines()
            found += [json.loads(line) for line in lines if line.endswith("}")]
        return sorted(found, key=lambda event: event["at"])


def publish(address, each_key):
    with Producer("orders", address=address, timeout=60) as producer:
        for value in range(each_key):
            for key in range(KEYS):
                producer.submit(str(value).encode(), key=b"key-%d" % key)
        producer.flush()


def settled_messages(address):
    with Admin(address=address, timeout=30) as admin:
        state = admin.describe_subscription("orders", "billing")
    return sum(partition.floor - 1 for partition in state.partitions)


def check(events, each_key):
    """What the module's docstring says; figures."""
    confirmed, acking = {}, {}
    order = collections.defaultdict(list)
    for event in events:
        message = (event["key"], event["value"])
        if event["what"] == "got":
            if message in confirmed:  # a consumer may have slept over what it was given in vain, and no other
                again = event["attempt"] >= confirmed[message]
                assert not again, f"{message} came again after its acknowledgement"
            if event["value"]:
                before = (event["key"], event["value"] - 1)
                assert before in acking, f"{message} was given out before {before} was acknowledged"
        elif event["what"] == "acking":
            acking.setdefault(message, event["at"])
        elif event["what"] == "acked" and event["outcome"] == "ok":
            assert message not in confirmed, f"{message} was acknowledged twice"
            confirmed[message] = event["attempt"]
            order[event["key"]].append((event["sent_at"], event["value"]))
    for key, acknowledged in order.items():
        values = [
            value for _, value in sorted(acknowledged)
        ]  # when it was heard of says nothing: anybody may be slow
        assert values == sorted(values), f"{key} out of order: {values}"
    return {
        "deliveries": sum(event["what"] == "got" for event in events),
        "refused": sum(event["what"] == "refused" for event in events),
        "kept": sum(event["what"] == "kept" for event in events),
        "acknowledged": len(confirmed),
        "unconfirmed": KEYS * each_key - len(confirmed),
    }


@pytest.mark.parametrize(
    ("each_key", "seed"),
    [(10, 1), *(pytest.param(100, seed, marks=pytest.mark.long) for seed in range(2, 6))],
)
def test_keys_keep_their_order_and_nothing_is_lost_whatever_happens(tmp_path, figures, each_key, seed):
    troupe = Troupe(tmp_path, seed)
    troupe.start_broker()
    try:
        with Admin(address=troupe.address, timeout=30) as admin:
            admin.create_topic("orders", partitions=2)
            admin.create_subscription("orders", "billing", CONFIG)
        publish(troupe.address, each_key)
        for _ in range(CONSUMERS):
            troupe.join()
        deadline = time.monotonic() + PATIENCE_S + each_key
        total = KEYS * each_key
        while settled_messages(troupe.address) < total or troupe.missing():
            assert time.monotonic() < deadline, f"{settled_messages(troupe.address)} of {total} settled"
            time.sleep(0.4)
            troupe.act()
    finally:
        troupe.end()
    found = check(troupe.events(), each_key)
    troupe.counts["joined"] = len(troupe.files)
    assert found["refused"] > 0
    assert found["kept"] > 0
    assert (
        found["unconfirmed"]
        <= troupe.counts["kills of the broker"] * 200 + troupe.counts["killed"] * 40 + 200
    )
    figures.append(
        f"queue chaos: {total} messages of {KEYS} keys, {found['deliveries']} deliveries, {found['refused']} refused, "
        f"{found['kept']} never answered, "
        + ", ".join(f"{count} {what}" for what, count in sorted(troupe.counts.items()))
        + f"; settled {total}, confirmed {found['acknowledged']}, out of order 0, twice 0"
    )
