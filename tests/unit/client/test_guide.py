"""The examples of docs/how-to/python-client.md run as they stand, apart from the address."""

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from millpond.testing import running_broker

GUIDE = Path(__file__).parents[3] / "docs" / "how-to" / "python-client.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
PRINTED = [
    ["stored as 1", "the last is 1001"],
    ["b'one'"],
    ["never: A batch of 2000074 bytes is larger than the limit of 1048588."],
    ["1 b'a'", "2 b'b'", "3 b'c'", "next: 4"],
    ["[b'a', b'b', b'c']", "[]", "[b'b', b'c']"],
    ["[1, 2]", "[3]"],
    ["[1, 2, 3]", "b'0'", "b'1'", "b'2'"],
    ["0 1 1", "1 1 1", "2 1 1", "3 1 1", "['events']"],
    ["broker 1 owns 0 partitions"],
]


@pytest.mark.parametrize(("code", "printed"), list(zip(EXAMPLES, PRINTED, strict=True)))
async def test_the_example_works(code, printed, tmp_path):
    async with running_broker(grpc=True) as broker:
        address = broker.listeners["grpc"]
        code = code.replace('address="127.0.0.1:9999"', f'address="{address}"')
        code = code.replace("127.0.0.1:9999,127.0.0.1:10000", f"127.0.0.1:1,{address}")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", code),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
            env={**os.environ, "MILLPOND_ADDRESS": address},
        )
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    assert out.decode().splitlines() == printed
