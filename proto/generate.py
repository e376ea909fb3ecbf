"""Writes `src/millpond/stubs/` from the schemas here: `python proto/generate.py`. `tests/tidy` fails if it is stale.

The generated modules lie side by side in one package, so imports between them are rewritten; nothing else is.
"""

import re
import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

PROTO = Path(__file__).parent
STUBS = PROTO.parent / "src/millpond/stubs"
SCHEMAS = (
    "millpond/v1/log.proto",
    "millpond/v1/admin.proto",
    "millpond/v1/payloads.proto",
    "millpond/v1/queue.proto",
    "millpond/v1/cluster.proto",
    "protocol/minikafka.proto",
)
BETWEEN = re.compile(r"^from (?:millpond\.v1|protocol) import (\w+_pb2)", re.MULTILINE)


def generate() -> dict[str, str]:
    """File name to content."""
    with tempfile.TemporaryDirectory() as folder:
        flags = [f"-I{PROTO}", f"--python_out={folder}", f"--pyi_out={folder}"]
        if protoc.main(["protoc", *flags, *SCHEMAS]) != 0:
            sys.exit("protoc failed")
        made = sorted(path for path in Path(folder).rglob("*_pb2.py*"))
        return {path.name: BETWEEN.sub(r"from millpond.stubs import \1", path.read_text()) for path in made}


if __name__ == "__main__":
    for name, content in generate().items():
        (STUBS / name).write_text(content)
