"""Loops over records, compiled by numba: the only per-record work of a Spark task. Arrays in, arrays out.

Compiled code is kept in a folder of the user's where the installed package cannot be written: numba must know
before it is imported, hence here.
"""

import os
import stat
import tempfile
from pathlib import Path
from typing import Final

CACHE_VARIABLE: Final = "NUMBA_CACHE_DIR"


def choose_cache_folder(package: Path) -> Path | None:
    """None if numba may write beside the code, as it does by itself; else a folder that is this user's alone."""
    if os.access(package, os.W_OK):
        return None
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # never raises
    for folder in (
        Path(home, "millpond", "numba"),
        Path(tempfile.gettempdir(), f"millpond-numba-{os.getuid()}"),
    ):
        if _is_ours(folder):
            return folder
    return Path(tempfile.mkdtemp(prefix="millpond-numba-"))


def _is_ours(folder: Path) -> bool:
    """What is in the cache is executed: nobody else may write there."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = folder.stat()
    except OSError:
        return False
    others = stat.S_IWGRP | stat.S_IWOTH
    return facts.st_uid == os.getuid() and not facts.st_mode & others and os.access(folder, os.W_OK)


if CACHE_VARIABLE not in os.environ:
    _folder = choose_cache_folder(Path(__file__).parent)
    if _folder is not None:
        os.environ[CACHE_VARIABLE] = str(_folder)
