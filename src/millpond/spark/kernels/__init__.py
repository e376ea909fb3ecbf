"""Loops over records, compiled by numba: the only per-record work of a Spark task. Arrays in, arrays out.

If the installed package is not writable, compiled code is cached in a folder of the user's. numba reads that
setting when it is imported, so this module sets it first.
"""

import os
import stat
import tempfile
from pathlib import Path
from typing import Final

CACHE_VARIABLE: Final = "NUMBA_CACHE_DIR"


def choose_cache_folder(package: Path) -> Path | None:
    """The folder for compiled code: None if numba can write next to the code, its default; else a folder that
    only this user can write to."""
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
    """numba executes what is in the cache, so no other user may be able to write there."""
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
