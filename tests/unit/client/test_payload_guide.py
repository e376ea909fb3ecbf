"""What docs/how-to/payloads.md shows works as it stands, apart from the addresses."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from millpond.records import crc32c
from millpond.testing import running_broker

GUIDE = (Path(__file__).parents[3] / "docs" / "how-to" / "payloads.md").read_text()
[(EXAMPLE, PRINTED)] = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", GUIDE, re.DOTALL)
NEW_ID, LINES, SEND = re.findall(r"```sh\n(.*?)```", GUIDE, re.DOTALL)
REFERENCE = "{};bytes={};crc32c={:08x}"


async def run(*command, **options):
    process = await asyncio.create_subprocess_exec(
        *command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()


async def test_the_example(tmp_path):
    async with running_broker(grpc=True) as broker:
        environment = {**os.environ, "MILLPOND_ADDRESS": broker.listeners["grpc"]}
        assert await run(sys.executable, "-c", EXAMPLE, cwd=tmp_path, env=environment) == PRINTED


@pytest.mark.parametrize("kind", ["file", "s3"])
async def test_the_lines(kind, tmp_path, request):
    if shutil.which("curl") is None:
        pytest.skip("there is no curl")
    store = {"storage": request.getfixturevalue("s3_store")} if kind == "s3" else {}
    (tmp_path / "film.mp4").write_bytes(film := bytes(range(256)) * 1000)
    async with running_broker(tmp_path / "data", http=True, **store) as broker:
        await broker.log.create_topic("films", 1, {"payload": "reference"})

        async def sh(lines, **environment):
            lines = lines.replace("127.0.0.1:8000", broker.listeners["http"])
            lines = lines.replace("curl ", "curl --silent --show-error --fail ")
            return await run(
                "sh", "-e", "-c", lines, cwd=tmp_path, env={"PATH": "/usr/bin:/bin", **environment}
            )

        payload = (await sh(NEW_ID.replace("python", sys.executable, 1))).strip()
        shown = await sh(LINES, ID=payload)
        reference = REFERENCE.format(payload, len(film), crc32c(film))
        sent = await sh(SEND, REFERENCE=reference)
    assert '"method":"PUT"' in shown
    assert reference in shown or kind == "s3"
    assert '"number":1' in sent
    assert (tmp_path / "copy.mp4").read_bytes() == film
