"""The README's code runs as it stands, apart from the address."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path

from millpond.testing import running_broker

README = Path(__file__).parents[2] / "README.md"


def the_code() -> str:
    [code] = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    return code


async def test_the_twelve_lines_work() -> None:
    async with running_broker(grpc=True) as broker:
        code = re.sub(
            r'(Producer|Consumer)\("hello"', rf'\1("hello", address="{broker.listeners["grpc"]}"', the_code()
        )
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    assert out.decode().splitlines() == [
        "the first has number 1",
        "1 b'k' b'one'",
        "2 None b'two'",
        "3 None b'three'",
    ]


def test_they_are_about_twelve() -> None:
    assert sum(1 for line in the_code().splitlines() if line.strip()) <= 12
