"""A member of a group in a process of its own, so that it can die without a word.

`python -m tests.clients.member <client> <address> <group> <topic> [<instance id>]` prints what it is given whenever
that changes, as a line of JSON.
"""

import json
import sys

from tests.clients.adapters.named import client_named
from tests.clients.patience import JOIN_SECONDS


def main(name: str, address: str, group: str, topic: str, instance_id: str | None = None) -> None:
    consumer = client_named(name).consumer(address, topics=[topic], group=group, instance_id=instance_id)
    known = None
    while True:
        consumer.poll(JOIN_SECONDS)
        if (now := sorted(number for _, number in consumer.assignment())) != known:
            known = now
            print(json.dumps(known), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
