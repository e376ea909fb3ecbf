"""The tables, as numbered migrations that run once on either engine.

Expand first, contract later: a migration only adds, so that the previous version can keep running beside the new
one. A migration that older code would break raises `min_code_version`, and older code then refuses to start.
"""

import secrets
from typing import Final, Literal

from millpond.catalog.database import CatalogTransaction
from millpond.model.errors import NewerSchema

CODE_VERSION: Final = 9
"""The newest migration this code knows."""

MIN_CODE_VERSION: Final = 4
"""The oldest code that may run on the schema this code creates."""

COORDINATOR_SHARDS: Final = 64

Dialect = Literal["sqlite", "postgres"]

META = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)
"""

FIRST: Final = (
    """
    CREATE TABLE writers (
      session TEXT NOT NULL, lane BIGINT NOT NULL, kind TEXT NOT NULL, address TEXT NOT NULL,
      clock TEXT NOT NULL, expires_at BIGINT NOT NULL, dead_since BIGINT,
      commit_no BIGINT NOT NULL DEFAULT 0, token TEXT, result TEXT,
      PRIMARY KEY (session, lane)) WITHOUT ROWID
    """,
    "CREATE TABLE coordinators (shard BIGINT PRIMARY KEY, owner TEXT, epoch BIGINT NOT NULL DEFAULT 0)",
    "CREATE TABLE counters (name TEXT PRIMARY KEY, next BIGINT NOT NULL)",
    """
    CREATE TABLE topics (
      id BLOB PRIMARY KEY, name TEXT NOT NULL, partitions BIGINT NOT NULL, config TEXT NOT NULL,
      created_at BIGINT NOT NULL, deleted_at BIGINT)
    """,
    "CREATE UNIQUE INDEX topics_living ON topics (name) WHERE deleted_at IS NULL",
    """
    CREATE TABLE partitions (
      topic_id BLOB NOT NULL, partition BIGINT NOT NULL, owner TEXT, epoch BIGINT NOT NULL DEFAULT 0,
      log_start BIGINT NOT NULL DEFAULT 0, end_offset BIGINT NOT NULL DEFAULT 0,
      bytes BIGINT NOT NULL DEFAULT 0, high_timestamp BIGINT NOT NULL DEFAULT -1,
      PRIMARY KEY (topic_id, partition)) WITHOUT ROWID
    """,
    """
    CREATE TABLE objects (
      id {identity}, key TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, session TEXT NOT NULL,
      bytes BIGINT NOT NULL, extents BIGINT NOT NULL, sealed BIGINT NOT NULL,
      created_at BIGINT NOT NULL, dead_since BIGINT)
    """,
    "CREATE INDEX objects_dead ON objects (dead_since) WHERE dead_since IS NOT NULL",
    # Inline bytes are the last column, so that a scan of the other columns never reads their overflow pages.
    """
    CREATE TABLE extents (
      topic_id BLOB NOT NULL, partition BIGINT NOT NULL, base_offset BIGINT NOT NULL,
      end_offset BIGINT NOT NULL, epoch BIGINT NOT NULL, object_id BIGINT, position BIGINT NOT NULL,
      length BIGINT NOT NULL, records BIGINT NOT NULL, min_timestamp BIGINT NOT NULL,
      max_timestamp BIGINT NOT NULL, high_timestamp BIGINT NOT NULL, stamped BIGINT NOT NULL,
      sparse_index BLOB, inline BLOB,
      PRIMARY KEY (topic_id, partition, base_offset)) WITHOUT ROWID
    """,
    """
    CREATE TABLE producers (
      topic_id BLOB NOT NULL, partition BIGINT NOT NULL, producer_id BIGINT NOT NULL,
      producer_epoch BIGINT NOT NULL, last_batches BLOB NOT NULL, updated_at BIGINT NOT NULL,
      PRIMARY KEY (topic_id, partition, producer_id)) WITHOUT ROWID
    """,
    """
    CREATE TABLE transactions (
      transactional_id TEXT PRIMARY KEY, shard BIGINT NOT NULL, producer_id BIGINT NOT NULL UNIQUE,
      producer_epoch BIGINT NOT NULL, timeout_ms BIGINT NOT NULL, state TEXT NOT NULL,
      started_at BIGINT, ended_producer_id BIGINT, ended_epoch BIGINT, updated_at BIGINT NOT NULL)
    """,
    """
    CREATE TABLE txn_partitions (
      topic_id BLOB NOT NULL, partition BIGINT NOT NULL, producer_id BIGINT NOT NULL,
      producer_epoch BIGINT NOT NULL, first_offset BIGINT,
      PRIMARY KEY (topic_id, partition, producer_id)) WITHOUT ROWID
    """,
    "CREATE INDEX txn_partitions_of_producer ON txn_partitions (producer_id)",
    """
    CREATE TABLE txn_offsets (
      producer_id BIGINT NOT NULL, group_id TEXT NOT NULL, topic_id BLOB NOT NULL, partition BIGINT NOT NULL,
      committed_offset BIGINT NOT NULL, leader_epoch BIGINT NOT NULL, metadata TEXT NOT NULL,
      PRIMARY KEY (producer_id, group_id, topic_id, partition)) WITHOUT ROWID
    """,
    """
    CREATE TABLE aborted_txns (
      topic_id BLOB NOT NULL, partition BIGINT NOT NULL, last_offset BIGINT NOT NULL,
      first_offset BIGINT NOT NULL, producer_id BIGINT NOT NULL,
      PRIMARY KEY (topic_id, partition, last_offset)) WITHOUT ROWID
    """,
    """
    CREATE TABLE groups (
      group_id TEXT PRIMARY KEY, shard BIGINT NOT NULL, generation BIGINT NOT NULL,
      protocol_type TEXT NOT NULL, state TEXT NOT NULL, members TEXT NOT NULL, updated_at BIGINT NOT NULL)
    """,
    """
    CREATE TABLE group_offsets (
      group_id TEXT NOT NULL, topic_id BLOB NOT NULL, partition BIGINT NOT NULL,
      committed_offset BIGINT NOT NULL, leader_epoch BIGINT NOT NULL, metadata TEXT NOT NULL,
      committed_at BIGINT NOT NULL,
      PRIMARY KEY (group_id, topic_id, partition)) WITHOUT ROWID
    """,
    "INSERT INTO counters (name, next) VALUES ('producer_id', 1)",
)

SECOND: Final = (
    """
    CREATE TABLE sink_commits (
      sink TEXT PRIMARY KEY, batch BIGINT NOT NULL, session TEXT NOT NULL, committed_at BIGINT NOT NULL)
    """,
    """
    CREATE TABLE pipeline_runs (
      id TEXT PRIMARY KEY, pipeline TEXT NOT NULL, topics TEXT NOT NULL, session TEXT NOT NULL,
      state TEXT NOT NULL, started_at BIGINT NOT NULL, ended_at BIGINT, report TEXT NOT NULL)
    """,
    "CREATE INDEX pipeline_runs_by_start ON pipeline_runs (started_at)",
    """
    CREATE TABLE compactions (
      topic_id BLOB NOT NULL, partition BIGINT NOT NULL, end_offset BIGINT NOT NULL,
      compacted_at BIGINT NOT NULL,
      PRIMARY KEY (topic_id, partition, end_offset)) WITHOUT ROWID
    """,
    "ALTER TABLE writers ADD COLUMN wall_ahead BIGINT",
    "ALTER TABLE writers ADD COLUMN ended_in_order BIGINT NOT NULL DEFAULT 0",
)

THIRD: Final = (
    """
    CREATE TABLE subscriptions (
      id BLOB PRIMARY KEY, topic_id BLOB NOT NULL, name TEXT NOT NULL, config TEXT NOT NULL,
      version BIGINT NOT NULL, created_at BIGINT NOT NULL)
    """,
    "CREATE UNIQUE INDEX subscriptions_by_name ON subscriptions (topic_id, name)",
    """
    CREATE TABLE subscription_state (
      subscription_id BLOB NOT NULL, member TEXT NOT NULL, partition BIGINT NOT NULL, topic_id BLOB NOT NULL,
      epoch BIGINT NOT NULL, floor BIGINT NOT NULL,
      PRIMARY KEY (subscription_id, member, partition)) WITHOUT ROWID
    """,
    # bits is NULL where every offset of the chunk is settled
    """
    CREATE TABLE subscription_chunks (
      subscription_id BLOB NOT NULL, member TEXT NOT NULL, partition BIGINT NOT NULL, chunk BIGINT NOT NULL,
      topic_id BLOB NOT NULL, bits BLOB,
      PRIMARY KEY (subscription_id, member, partition, chunk)) WITHOUT ROWID
    """,
    """
    CREATE TABLE subscription_retries (
      subscription_id BLOB NOT NULL, member TEXT NOT NULL, partition BIGINT NOT NULL,
      message_offset BIGINT NOT NULL, topic_id BLOB NOT NULL, attempts BIGINT NOT NULL,
      not_before BIGINT NOT NULL,
      PRIMARY KEY (subscription_id, member, partition, message_offset)) WITHOUT ROWID
    """,
    """
    CREATE TABLE dead_letters (
      subscription_id BLOB NOT NULL, member TEXT NOT NULL, partition BIGINT NOT NULL,
      message_offset BIGINT NOT NULL, target TEXT NOT NULL, dead_at BIGINT NOT NULL, record BLOB NOT NULL,
      PRIMARY KEY (subscription_id, member, partition, message_offset)) WITHOUT ROWID
    """,
    """
    CREATE TABLE redrives (
      subscription_id BLOB NOT NULL, topic_id BLOB NOT NULL, partition BIGINT NOT NULL,
      next_offset BIGINT NOT NULL,
      PRIMARY KEY (subscription_id, topic_id, partition)) WITHOUT ROWID
    """,
)

# Code older than this migration claims every partition when it joins.
FOURTH: Final = (
    "ALTER TABLE writers ADD COLUMN node_id BIGINT NOT NULL DEFAULT 0",
    "ALTER TABLE writers ADD COLUMN leaving BIGINT NOT NULL DEFAULT 0",
    "INSERT INTO counters (name, next) VALUES ('topology', 1)",
    "CREATE INDEX partitions_by_owner ON partitions (owner)",
    "ALTER TABLE partitions ADD COLUMN moved BIGINT NOT NULL DEFAULT 0",
    "CREATE INDEX partitions_by_move ON partitions (moved)",
    """
    CREATE TABLE exclusive_consumers (
      subscription_id BLOB NOT NULL, session TEXT NOT NULL, topic_id BLOB NOT NULL, consumer TEXT NOT NULL,
      token TEXT NOT NULL,
      PRIMARY KEY (subscription_id, session)) WITHOUT ROWID
    """,
)

# Older code may run beside this one. Extents that it appends or merges have no append time, so maintenance examines
# them before it lets them expire.
FIFTH: Final = (
    "ALTER TABLE extents ADD COLUMN appended_at BIGINT NOT NULL DEFAULT -1",
    "ALTER TABLE extents ADD COLUMN late_at BIGINT NOT NULL DEFAULT -1",
)

# Older code may run beside this one, and does not know of users and ACLs: it cannot listen beyond loopback with
# security switched on, because it does not have that setting.
SIXTH: Final = (
    """
    CREATE TABLE scram_credentials (
      user_name TEXT NOT NULL, mechanism TEXT NOT NULL, salt BLOB NOT NULL, stored_key BLOB NOT NULL,
      server_key BLOB NOT NULL, iterations BIGINT NOT NULL, version BIGINT NOT NULL,
      PRIMARY KEY (user_name, mechanism)) WITHOUT ROWID
    """,
    """
    CREATE TABLE api_tokens (
      id TEXT PRIMARY KEY, digest BLOB NOT NULL, principal TEXT NOT NULL, expires_at BIGINT,
      created_at BIGINT NOT NULL, created_by TEXT NOT NULL, description TEXT NOT NULL) WITHOUT ROWID
    """,
    """
    CREATE TABLE acls (
      resource_type BIGINT NOT NULL, pattern_type BIGINT NOT NULL, name TEXT NOT NULL, principal TEXT NOT NULL,
      host TEXT NOT NULL, operation BIGINT NOT NULL, permission BIGINT NOT NULL,
      PRIMARY KEY (resource_type, pattern_type, name, principal, host, operation, permission)) WITHOUT ROWID
    """,
    "INSERT INTO counters (name, next) VALUES ('security', 1)",
)

# Older code may run beside this one, and does not limit clients by the quotas.
SEVENTH: Final = (
    """
    CREATE TABLE quotas (
      entity TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (entity, key)) WITHOUT ROWID
    """,
)

# Older code may run beside this one, and accepts no sessions of browsers. It does not delete them with a password, but
# a session is valid only while its password is the stored one.
EIGHTH: Final = (
    """
    CREATE TABLE sessions (
      digest BLOB PRIMARY KEY, principal TEXT NOT NULL, credential TEXT NOT NULL, credential_version BIGINT NOT NULL,
      created_at BIGINT NOT NULL, seen_at BIGINT NOT NULL, expires_at BIGINT NOT NULL) WITHOUT ROWID
    """,
    "CREATE INDEX sessions_by_principal ON sessions (principal)",
    "INSERT INTO counters (name, next) VALUES ('sessions', 1)",
)

# Older code may run beside this one. For it a group of the consumer protocol is an empty classic group, because the
# columns that it reads say so; it does not know of configs of groups, and drops the reasons of failed deliveries.
NINTH: Final = (
    "ALTER TABLE groups ADD COLUMN type TEXT NOT NULL DEFAULT 'classic'",
    "ALTER TABLE groups ADD COLUMN state_of_type TEXT NOT NULL DEFAULT ''",
    """
    CREATE TABLE group_members (
      group_id TEXT NOT NULL, member_id TEXT NOT NULL, member TEXT NOT NULL,
      PRIMARY KEY (group_id, member_id)) WITHOUT ROWID
    """,
    """
    CREATE TABLE dynamic_configs (
      resource_type TEXT NOT NULL, resource_name TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL,
      PRIMARY KEY (resource_type, resource_name, name)) WITHOUT ROWID
    """,
    "INSERT INTO counters (name, next) VALUES ('dynamic_configs', 1)",
    "ALTER TABLE subscription_retries ADD COLUMN reasons TEXT NOT NULL DEFAULT ''",
)

MIGRATIONS: Final = (FIRST, SECOND, THIRD, FOURTH, FIFTH, SIXTH, SEVENTH, EIGHTH, NINTH)

HOT_TABLES: Final = ("writers", "partitions", "objects", "producers", "group_offsets")
HOT_SETTINGS: Final = (
    "fillfactor = 60, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000"
)
POSTGRES_TUNING: Final = (
    *(f"ALTER TABLE {table} SET ({HOT_SETTINGS})" for table in HOT_TABLES),
    "ALTER TABLE extents ALTER COLUMN inline SET STORAGE EXTERNAL",
)


def migrate(tx: CatalogTransaction, *, dialect: Dialect) -> None:
    """Apply the missing migrations. Runs inside one transaction, which excludes every other migration."""
    tx.rows(_in_dialect(META, dialect))
    meta: dict[str, str] = dict(tx.rows("SELECT name, value FROM meta"))
    if int(meta.get("min_code_version", "0")) > CODE_VERSION:
        raise NewerSchema(needed=meta["min_code_version"], code=CODE_VERSION)
    current = int(meta.get("schema_version", "0"))
    for version, statements in enumerate(MIGRATIONS[current:], start=current + 1):
        _apply(tx, version, statements, dialect)


def is_current(tx: CatalogTransaction) -> bool:
    """Whether `migrate` has nothing to do, and this code may use the schema."""
    meta: dict[str, str] = dict(
        tx.rows("SELECT name, value FROM meta WHERE name IN ('schema_version', 'min_code_version')")
    )
    current, needed = (int(meta.get(name, "0")) for name in ("schema_version", "min_code_version"))
    return current >= CODE_VERSION and needed <= CODE_VERSION


def _apply(tx: CatalogTransaction, version: int, statements: tuple[str, ...], dialect: Dialect) -> None:
    for statement in statements:
        tx.rows(_in_dialect(statement, dialect))
    if version == 1:
        tx.each("INSERT INTO coordinators (shard) VALUES (?)", [(n,) for n in range(COORDINATOR_SHARDS)])
        tx.rows("INSERT INTO meta (name, value) VALUES ('cluster_id', ?)", (secrets.token_urlsafe(16),))
        tx.rows("INSERT INTO meta (name, value) VALUES ('incarnation', ?)", (secrets.token_hex(8),))
        for statement in POSTGRES_TUNING if dialect == "postgres" else ():
            tx.rows(statement)
    if version == 3:
        tx.rows("INSERT INTO meta (name, value) VALUES ('ack_secret', ?)", (secrets.token_hex(32),))
    if version == 6:
        tx.rows("INSERT INTO meta (name, value) VALUES ('security_secret', ?)", (secrets.token_hex(32),))
    _set_meta(tx, "schema_version", version)
    _set_meta(tx, "min_code_version", MIN_CODE_VERSION)


def _set_meta(tx: CatalogTransaction, name: str, value: int) -> None:
    upsert = (
        "INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
    )
    tx.rows(upsert, (name, str(value)))


def _in_dialect(statement: str, dialect: Dialect) -> str:
    if dialect == "sqlite":
        return statement.replace("{identity}", "INTEGER PRIMARY KEY")
    identity = "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
    return statement.replace("{identity}", identity).replace("WITHOUT ROWID", "").replace("BLOB", "BYTEA")


def read_meta(tx: CatalogTransaction, name: str) -> str:
    value: str = tx.rows("SELECT value FROM meta WHERE name = ?", (name,))[0][0]
    return value
