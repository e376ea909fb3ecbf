"""Faust (faust-streaming) against a broker: `python … HOST:PORT INPUT ID FOLDER COUNT` counts words in a table, which
is in memory and in a changelog topic, and ends after COUNT words. It prints the table, with what the
changelog had, as one line of JSON."""

import json
import os
import signal
import sys

import faust

address, source, name, folder, count = sys.argv[1:6]
app = faust.App(
    name,
    broker=f"kafka://{address}",
    store="memory://",
    datadir=folder,
    topic_partitions=2,
    topic_replication_factor=1,
    web_enabled=False,
    stream_wait_empty=False,
)
words = app.topic(source, key_type=str, value_type=str, value_serializer="raw")
counts = app.Table("counts", default=int, partitions=2)
handled = 0


@app.agent(words)
async def count_words(stream):
    global handled
    async for word in stream:
        counts[word] += 1
        handled += 1
        if handled == int(count):
            os.kill(os.getpid(), signal.SIGTERM)  # the worker commits and stops


try:
    faust.Worker(app, loglevel="error", redirect_stdouts=False).execute_from_commandline()
except SystemExit:
    print("\n" + json.dumps({"handled": handled, "counts": dict(counts)}))
    raise
