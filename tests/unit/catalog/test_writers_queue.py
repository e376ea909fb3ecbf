"""Writers of one SQLite catalog queue on a file lock."""

import threading

from millpond.catalog import topics
from millpond.catalog.sqlite import SqliteDatabase


def test_a_writer_waits_its_turn_without_sqlites_busy_handler(tmp_path):
    """The handler starves writers: it sleeps and tries its luck. A blocking file lock is a queue."""
    first, second = (SqliteDatabase(tmp_path / "catalog.db") for _ in range(2))
    first.migrate()
    second._writer.set_busy_timeout(0)
    held, asking = threading.Event(), threading.Event()

    def hold():
        with first.write() as tx:
            held.set()
            asking.wait(10)
            threading.Event().wait(0.2)
            topics.create(tx, "first", 1, {}, now_ms=1)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(10)
    asking.set()
    with second.write() as tx:
        assert topics.find(tx, "first").name == "first"
    holder.join()
    assert second.longest_wait_ms > 100
    first.close()
    second.close()
