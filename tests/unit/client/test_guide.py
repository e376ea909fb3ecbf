"""The examples of docs/how-to/python-client.md run as they stand, apart from the address, and print what it shows."""

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

from millpond.testing import running_broker

GUIDE = Path(__file__).parents[3] / "docs" / "how-to" / "python-client.md"
EXAMPLES = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", GUIDE.read_text(), re.DOTALL)


def test_each_example_shows_its_output() -> None:
    assert len(EXAMPLES) == GUIDE.read_text().count("```python") >= 9


async def test_the_examples_work_in_the_order_of_the_page(tmp_path: Path) -> None:
    async with running_broker(grpc=True) as broker:
        address = broker.listeners["grpc"]
        for code, printed in EXAMPLES:
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
            assert out.decode() == printed, code
