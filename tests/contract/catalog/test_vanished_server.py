"""A database machine that vanishes says nothing: whoever waits for it must ask, and not for hours."""

import contextlib

from millpond.catalog.postgres import PostgresDatabase

FEW_LEASES_S = 30


def test_a_server_that_is_silent_is_asked_and_given_up_within_a_few_leases(postgres_url):
    with contextlib.closing(PostgresDatabase(postgres_url)) as database, database.read() as tx:
        told = tx._connection.info.get_parameters()
    asked_after, every, times = (int(told[f"keepalives_{name}"]) for name in ("idle", "interval", "count"))
    assert asked_after + every * times <= FEW_LEASES_S
    assert asked_after * 1000 < int(told["tcp_user_timeout"]) <= FEW_LEASES_S * 1000
