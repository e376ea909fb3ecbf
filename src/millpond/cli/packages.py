"""The Python packages of each extra of Millpond, which of them are missing, and how to install them."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Final

from millpond.model.errors import NotInstalled

EXTRAS: Final[Mapping[str, tuple[str, ...]]] = {
    "s3": ("obstore",),
    "postgres": ("psycopg",),
    "spark": ("pyspark", "pyarrow", "numba", "numpy", "pandas"),
    "tables": ("deltalake", "pyiceberg", "fastavro"),
}


def missing_from(extra: str) -> list[str]:
    """The packages of an extra that are not installed."""
    return [package for package in EXTRAS[extra] if not is_installed(package)]


def is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):  # an import hook refuses it, or it is None in `sys.modules`
        return False


def install_command(*extras: str) -> str:
    return (
        f"pip install 'millpond[{','.join(extras)}]'" if extras else "pip install --force-reinstall millpond"
    )


def listed(packages: Sequence[str]) -> str:
    """`the Python package a`, `the Python packages a, b and c`."""
    *others, last = packages
    if not others:
        return f"the Python package {last}"
    return f"the Python packages {', '.join(others)} and {last}"


def not_installed(error: ModuleNotFoundError, purpose: str) -> NotInstalled:
    """Convert an import error into an error that says what to install."""
    package = (error.name or "").partition(".")[0]
    extras = [extra for extra, packages in EXTRAS.items() if package in packages]
    return NotInstalled(purpose=purpose, what=listed([package]), advice=install_command(*extras))
