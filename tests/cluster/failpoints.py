"""Points at which a broker's writer thread stops until a test lets it go on."""

import threading
from contextlib import contextmanager

HOLD_SECONDS_MAX = 30


class Paused:
    """A failpoint: while it is armed, the writer thread waits right before its commit, its bytes being durable."""

    def __init__(self):
        self.armed = False
        self.reached = threading.Event()
        self.released = threading.Event()

    def wrap(self, database):
        return PausingDatabase(database, self)


class PausingDatabase:
    """Waits at the beginning of a write by the writer thread, as if the process had been stopped there."""

    def __init__(self, database, point):
        self._database = database
        self._point = point

    def write(self):
        if self._point.armed and threading.current_thread().name == "millpond-writer":
            self._point.reached.set()
            assert self._point.released.wait(HOLD_SECONDS_MAX)
        return self._database.write()

    def __getattr__(self, name):
        return getattr(self._database, name)


class Stopping:
    """Stops a transaction of the writer thread in the middle, with the rows it has locked."""

    def __init__(self, transaction, point):
        self._transaction = transaction
        self._point = point

    def rows(self, sql, parameters=()):
        found = self._transaction.rows(sql, parameters)
        if self._point.armed and sql.strip().startswith("UPDATE partitions"):
            self._point.reached.set()
            assert self._point.released.wait(HOLD_SECONDS_MAX)
        return found

    def each(self, sql, many):
        return [self.rows(sql, parameters) for parameters in many]

    def __getattr__(self, name):
        return getattr(self._transaction, name)


class StoppingDatabase(PausingDatabase):
    @contextmanager
    def write(self):
        with self._database.write() as transaction:
            yield Stopping(transaction, self._point)
