"""The last section of `docs/tutorial.md`, in this process, so that it shares the Spark session of all these tests."""

import shlex

import pytest
from click.testing import CliRunner
from tests.spark.topics import append, serving
from tests.tutorial import sections

from millpond.cli.main import cli
from millpond.records import Record

ORDERS = (
    *((b"ada", b"chair"), (b"bob", b"lamp"), (b"ada", b"table"), (b"eve", b"sofa"), (b"bob", b"desk")),
    *((b"eve", b"rug"), (None, b"broken"), (None, b"broken")),
)
"""What the sections before it leave in the topic."""


@pytest.fixture
async def data(tmp_path):
    path = tmp_path / "data"
    async with serving(path) as broker:
        await broker.log.create_topic("orders", 1)
        await append(broker, "orders", 0, [Record(value, key) for key, value in ORDERS])
    return path


def test_the_query_prints_what_the_tutorial_shows(spark, data):
    [step] = sections()[-1][1]
    command, *words = shlex.split(step.code)
    done = CliRunner().invoke(cli, [*words, "--data-dir", str(data)])
    assert (command, done.exit_code) == ("millpond", 0), done.output
    assert step.matches(done.stdout), done.stdout
