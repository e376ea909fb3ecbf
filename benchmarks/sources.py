"""Which source tree a started process imports."""

import os
from pathlib import Path


def environment(source: Path | None) -> dict[str, str] | None:
    """The environment of a process that imports `millpond`, and the benchmarks, from this checkout; None for the
    installed version."""
    if source is None:
        return None
    return {**os.environ, "PYTHONPATH": os.pathsep.join((str(source / "src"), str(source)))}
