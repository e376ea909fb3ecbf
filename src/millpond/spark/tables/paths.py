"""The location of a table: a path on a file system that driver and executors share, or a URL that pyarrow can
write to."""

import os
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


def absolute(location: str) -> str:
    """An absolute path for a local location; other URLs are unchanged, without a trailing slash."""
    parts = urlsplit(location)
    if parts.scheme == "file":
        return os.path.abspath(unquote(parts.path))  # the path need not exist
    return location.rstrip("/") if "://" in location else str(Path(location).absolute())


def is_local(root: str) -> bool:
    return "://" not in root


def as_url(root: str) -> str:
    """As Spark and Iceberg expect it: they use the path literally, so a `%20` in it would be three
    characters."""
    return f"file://{root}" if is_local(root) else root


def filesystem(root: str) -> "tuple[FileSystem, str]":
    """pyarrow's file system, and the path in it."""
    from pyarrow.fs import FileSystem, LocalFileSystem

    if is_local(root):
        return LocalFileSystem(), root
    found: tuple[FileSystem, str] = FileSystem.from_uri(root)
    return found


def delete_files(root: str, paths: list[str]) -> None:
    """Delete files that were written and never committed."""
    import pyarrow.fs as pafs

    files, base = filesystem(root)
    for path in paths:
        if files.get_file_info(f"{base}/{path}").type != pafs.FileType.NotFound:
            files.delete_file(f"{base}/{path}")
