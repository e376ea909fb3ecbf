"""What docs/how-to/payloads.md shows works as it stands, apart from the addresses."""

import asyncio
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from millpond.model.payloads import new_payload_id
from millpond.testing import running_broker

GUIDE = (Path(__file__).parents[3] / "docs" / "how-to" / "payloads.md").read_text()
[EXAMPLE] = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
[LINES] = re.findall(r"```sh\n(.*?)```", GUIDE, re.DOTALL)


async def run(*command, **options):
    process = await asyncio.create_subprocess_exec(
        *command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()


async def test_the_example(tmp_path):
    async with running_broker(grpc=True) as broker:
        address = f'address="{broker.listeners["grpc"]}"'
        code = re.sub(r"(Admin|Payloads)\(\)", rf"\1({address})", EXAMPLE)
        code = re.sub(r'(Producer|Consumer)\("films"\)', rf'\1("films", {address})', code)
        assert await run(sys.executable, "-c", code, cwd=tmp_path) == "b'noir' 16\nb'a very long film'\n"


@pytest.mark.parametrize("kind", ["file", "s3"])
async def test_the_lines(kind, tmp_path, request):
    if shutil.which("curl") is None:
        pytest.skip("there is no curl")
    store = {"storage": request.getfixturevalue("s3_store")} if kind == "s3" else {}
    (tmp_path / "film.mp4").write_bytes(film := bytes(range(256)) * 1000)
    async with running_broker(tmp_path / "data", http=True, **store) as broker:
        await broker.log.create_topic("films", 1, {"payload": "reference"})
        lines = LINES.replace("127.0.0.1:8000", broker.listeners["http"])
        lines = lines.replace("curl ", "curl --silent --show-error --fail ")
        payload = str(new_payload_id(broker.clock.now_ms()))
        shown = await run("sh", "-e", "-c", lines, cwd=tmp_path, env={"ID": payload, "PATH": "/usr/bin:/bin"})
    assert '"method":"PUT"' in shown
    assert (tmp_path / "copy.mp4").read_bytes() == film
