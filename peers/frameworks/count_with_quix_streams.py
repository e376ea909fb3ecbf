"""Quix Streams against a broker: `python … HOST:PORT INPUT OUTPUT GROUP FOLDER COUNT` counts words exactly once, with
state in FOLDER and a changelog topic, and ends after COUNT words. It prints how many it handled as one line of JSON."""

import json
import sys

from quixstreams import Application, State

address, source, target, group, folder, count = sys.argv[1:7]
SECONDS_MAX = 90.0


def count_words(word: str, state: State) -> int:
    total: int = state.get(word, default=0) + 1
    state.set(word, total)
    return total


app = Application(
    broker_address=address,
    consumer_group=group,
    auto_offset_reset="earliest",
    processing_guarantee="exactly-once",
    commit_interval=0.5,
    state_dir=folder,
    loglevel="ERROR",
)
words = app.topic(source, key_deserializer="str", value_deserializer="str")
counts = app.topic(target, key_serializer="str", value_serializer="json")
app.dataframe(words).apply(count_words, stateful=True).to_topic(counts)
app.run(count=int(count), timeout=SECONDS_MAX)
print(json.dumps({"handled": int(count)}))
