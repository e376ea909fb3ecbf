"""A PostgreSQL database whose settings could lose commits is refused."""

import psycopg
import pytest
from tests.cluster.over_postgres import cluster

from millpond.model.errors import UnsafeDatabase
from millpond.settings import Settings


async def test_a_database_whose_commits_do_not_wait_is_refused(databases, s3_store):
    url = databases.new_url()
    with psycopg.connect(url, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f"ALTER DATABASE {name} SET synchronous_commit = off".encode())
    await refused(url, s3_store, "synchronous_commit")


async def refused(url, store, setting):
    with pytest.raises(UnsafeDatabase) as error:
        async with cluster([url], store):
            pass
    assert error.value.facts == {"setting": setting, "value": "off"}
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT to_regclass('partitions')").fetchone() == (None,), (
            "it wrote a schema"
        )
    assert Settings(catalog=url).catalog == url
