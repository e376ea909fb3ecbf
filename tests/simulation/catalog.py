"""One catalog for all: real SQL in memory, each broker's way to it as bad as the story wants.

Triggers write down, in the same transaction, who appended what and who became an owner: what the checker believes is
the catalog's own history and not what brokers say of themselves.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.simulation.loop import World

from millpond.catalog.database import CatalogTransaction, Parameters, Row
from millpond.catalog.sqlite import SqliteMemoryDatabase
from millpond.model.errors import CatalogUnavailable, OutcomeUnknown

LEASE_CLOCK = "the simulated world"
HISTORY = (
    "CREATE TABLE sim_appends (at REAL, committer TEXT, owner TEXT, owner_epoch INT, topic_id BLOB, partition INT,"
    " base_offset INT, end_offset INT, epoch INT)",
    """
    CREATE TRIGGER sim_append AFTER INSERT ON extents
    WHEN NEW.stamped = 0 BEGIN -- others are rewritten
      INSERT INTO sim_appends SELECT sim_now(), sim_committer(), p.owner, p.epoch, NEW.topic_id, NEW.partition,
        NEW.base_offset, NEW.end_offset, NEW.epoch
      FROM partitions p WHERE p.topic_id = NEW.topic_id AND p.partition = NEW.partition;
    END
    """,
    "CREATE TABLE sim_owners (at REAL, committer TEXT, what TEXT, owner TEXT, epoch INT)",
    """
    CREATE TRIGGER sim_owner AFTER UPDATE OF owner, epoch ON partitions
    WHEN NEW.epoch <> OLD.epoch OR NEW.owner IS NOT OLD.owner BEGIN
      INSERT INTO sim_owners VALUES
        (sim_now(), sim_committer(), hex(NEW.topic_id) || '-' || NEW.partition, NEW.owner, NEW.epoch);
    END
    """,
    """
    CREATE TRIGGER sim_shard AFTER UPDATE OF owner, epoch ON coordinators
    WHEN NEW.epoch <> OLD.epoch OR NEW.owner IS NOT OLD.owner BEGIN
      INSERT INTO sim_owners VALUES (sim_now(), sim_committer(), 'shard-' || NEW.shard, NEW.owner, NEW.epoch);
    END
    """,
    "CREATE TABLE sim_offsets (at REAL, group_id TEXT, partition INT, before INT, now INT)",
    """
    CREATE TRIGGER sim_offset AFTER UPDATE ON group_offsets BEGIN
      INSERT INTO sim_offsets VALUES
        (sim_now(), NEW.group_id, NEW.partition, OLD.committed_offset, NEW.committed_offset);
    END
    """,
    "CREATE TABLE sim_deaths (at REAL, session TEXT, expires_at INT)",
    """
    CREATE TRIGGER sim_death AFTER UPDATE OF dead_since ON writers
    WHEN OLD.dead_since IS NULL AND NEW.dead_since IS NOT NULL AND NEW.lane = 0 BEGIN
      INSERT INTO sim_deaths VALUES (sim_now(), NEW.session, NEW.expires_at);
    END
    """,
)


class SharedCatalog:
    def __init__(self, world: World) -> None:
        self.world = world
        self.committer = ""
        self.commits = 0
        self.bytes = 0
        self._memory = SqliteMemoryDatabase()
        self._memory.migrate()
        connection = self._memory._connection
        connection.create_scalar_function("sim_now", lambda: round(world.now, 6), 0)
        connection.create_scalar_function("sim_committer", lambda: self.committer, 0)
        for statement in HISTORY:
            connection.execute(statement)

    def begin(self, committer: str) -> Any:
        self.committer = committer
        return self._memory.write()

    def read(self) -> Any:
        return self._memory.read()

    def rows(self, sql: str, parameters: Parameters = ()) -> list[Row]:
        """For the checker."""
        with self._memory.read() as tx:
            return tx.rows(sql, parameters)

    def close(self) -> None:
        self._memory.close()


@dataclass(slots=True)
class Weather:
    """How a broker's way to the catalog, or to the store, is at the moment."""

    cut: bool = False
    refuse: float = 0.0
    """How many calls of a hundred fail before anything has happened, from 0 to 1."""
    lose: float = 0.0
    """How many take effect, or not, and are not answered."""
    slow_s: float = 0.0
    """Added to every call, at most."""


class SimTransaction:
    """The real one, with the world's clock."""

    def __init__(self, transaction: CatalogTransaction, world: World) -> None:
        self.rows = transaction.rows
        self._transaction = transaction
        self._world = world

    def each(self, sql: str, many: Sequence[Parameters]) -> list[list[Row]]:
        return self._transaction.each(sql, many)

    def lease_clock(self) -> tuple[str, int]:
        return LEASE_CLOCK, int(self._world.now * 1000)

    def terminate_connections(self, names: Sequence[str]) -> None:
        """A transaction here is over before anything else happens."""

    def disable_lock_timeout(self) -> None:
        """Nor does anybody wait for locks."""


class BrokersCatalog:
    """The catalog as one broker reaches it."""

    def __init__(self, shared: SharedCatalog, weather: Weather, name: str, counts: dict[str, int]) -> None:
        self.name = name
        self._shared = shared
        self._weather = weather
        self._counts = counts
        self._seen = 0
        self._own = 0
        self._closed = False

    @contextmanager
    def write(self) -> Iterator[SimTransaction]:
        fate = self._fate()
        if fate == "refuse":
            raise CatalogUnavailable(reason="simulated: no way to the catalog")
        turn = self._shared.begin(self.name)
        transaction = SimTransaction(turn.__enter__(), self._shared.world)
        try:
            yield transaction
        except BaseException as error:
            turn.__exit__(type(error), error, error.__traceback__)
            raise
        if fate == "lose before":
            turn.__exit__(OutcomeUnknown, OutcomeUnknown(reason="simulated"), None)
            raise OutcomeUnknown(reason="simulated: it had not taken effect")
        turn.__exit__(None, None, None)
        self._shared.commits += 1
        self._own += 1
        if fate == "lose after":
            raise OutcomeUnknown(reason="simulated: it had taken effect")

    @contextmanager
    def read(self) -> Iterator[SimTransaction]:
        if self._closed or self._weather.cut or self._chance(self._weather.refuse):
            raise CatalogUnavailable(reason="simulated: no way to the catalog")
        with self._shared.read() as transaction:
            yield SimTransaction(transaction, self._shared.world)

    def has_foreign_commits(self) -> bool:
        if self._closed or self._weather.cut:
            raise CatalogUnavailable(reason="simulated: no way to the catalog")
        foreign = self._shared.commits - self._own
        changed, self._seen = foreign != self._seen, foreign
        return changed

    def migrate(self) -> None:
        """It is there."""

    def close(self) -> None:
        self._closed = True

    def _fate(self) -> str:
        if self._closed or self._weather.cut or self._chance(self._weather.refuse):
            self._counts["commits refused"] = self._counts.get("commits refused", 0) + 1
            return "refuse"
        if self._chance(self._weather.lose):
            fate = "lose before" if self._chance(0.5) else "lose after"
            name = f"answers lost ({fate.removeprefix('lose ')} the effect)"
            self._counts[name] = self._counts.get(name, 0) + 1
            return fate
        return "answer"

    def _chance(self, share: float) -> bool:
        return share > 0 and self._shared.world.random.random() < share
