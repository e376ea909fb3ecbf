"""What docs/how-to/queue.md shows works as it stands, apart from the addresses."""

import asyncio
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from millpond.cli.main import cli
from millpond.testing import running_broker

GUIDE = (Path(__file__).parents[3] / "docs" / "how-to" / "queue.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", GUIDE, re.DOTALL)
LINES = re.findall(r"```sh\n(.*?)```", GUIDE, re.DOTALL)
PULL, ANSWER, NACK = (each for each in LINES if "curl" in each)


async def run(*command, **options):
    process = await asyncio.create_subprocess_exec(
        *command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()


async def test_the_examples_work_in_the_order_of_the_page(tmp_path):
    assert len(EXAMPLES) == GUIDE.count("```python")
    create = re.search(
        r"^millpond (subscription create orders billing .*?) +#", LINES[0], re.MULTILINE
    ).group(1)
    async with running_broker(grpc=True) as broker:
        address = broker.listeners["grpc"]
        await broker.log.create_topic("orders", 1)
        environment = {**os.environ, "MILLPOND_ADDRESS": address}
        await run(sys.executable, "-m", "millpond", *create.split(), env=environment)
        for code, printed in EXAMPLES:
            assert await run(sys.executable, "-c", code, cwd=tmp_path, env=environment) == printed, code


async def test_the_lines_with_curl(tmp_path):
    if shutil.which("curl") is None:
        pytest.skip("there is no curl")
    async with running_broker(http=True) as broker:
        await broker.produce("orders", b"x", b"y")

        async def sh(lines, **environment):
            lines = lines.replace("127.0.0.1:8000", broker.listeners["http"]).replace("curl ", "curl -sSf ")
            return await run("sh", "-e", "-c", lines, env={"PATH": "/usr/bin:/bin", **environment})

        pulled = (await sh(PULL)).partition("}}")[2]
        first, second = json.loads(pulled)["deliveries"]
        answered = await sh(ANSWER, ACK_ID=first["ack_id"]) + await sh(NACK, ACK_ID=second["ack_id"])
        [partition] = (await broker.queues.describe("orders", "audit")).partitions
    assert answered.count('"result":"ok"') == 3
    assert [each.reasons for each in partition.failing] == [("no such customer",)]


def test_the_commands_have_the_options_that_are_shown():
    """Each line is taken apart by the command itself, which is not called."""
    shown = re.findall(r"^millpond (?!topic)([^\n#]+)", "\n".join(LINES), re.MULTILINE)
    assert len(shown) >= 9
    for line in shown:
        words = shlex.split(line)
        command, context = cli, cli.make_context("millpond", words.copy(), resilient_parsing=True)
        while hasattr(command, "get_command"):
            command = command.get_command(context, words.pop(0))
        context = command.make_context("millpond", words)
        assert context.params["topic"].startswith("orders"), line
