"""Schemathesis takes the document at its word: requests that fit it and requests that do not, in sequences too."""

import asyncio
import os
import re
import sys
from pathlib import Path

from millpond.frontends.web.operations import OPERATIONS
from millpond.testing import running_broker

HERE = Path(__file__).parent
SECONDS_MAX = 280
EXAMPLES_PER_OPERATION = 10
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "unsupported_method",
    "allow_header_conformance",
    "use_after_free",
)
"""Not whether valid data is accepted: an offset may well be out of range, and a time too far ahead."""


async def test_the_interface_is_what_its_document_says(figures, tmp_path):
    async with running_broker(http=True) as broker:
        await broker.produce("pond", b"x")
        await broker.queues.create("pond", "anglers")
        status, output = await schemathesis(f"http://{broker.listeners['http']}/openapi.json", tmp_path)
        assert status == 0, output
        assert (await broker.read("pond"))[0].value == b"x"
    operations = re.search(r"Tested: (\d+)", output)
    cases = re.search(r"(\d+) generated", output)
    assert operations
    assert int(operations[1]) == len(OPERATIONS) - 1, "all but GET /openapi.json, which it has read"
    assert cases
    figures.append(f"HTTP: Schemathesis found nothing in {cases[1]} requests")


async def schemathesis(url, folder):
    running = await asyncio.create_subprocess_exec(
        Path(sys.executable).with_name("schemathesis"),
        *("run", url, "--no-color", "--seed", "1", "--request-timeout", "30", "--warnings", "off"),
        *("--checks", ",".join(CHECKS), "--max-examples", str(EXAMPLES_PER_OPERATION)),
        cwd=folder,
        env=os.environ | {"SCHEMATHESIS_HOOKS": "hooks", "PYTHONPATH": str(HERE)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(SECONDS_MAX):
            output, _ = await running.communicate()
    finally:
        if running.returncode is None:
            running.kill()
            await running.wait()
    return running.returncode, output.decode()
