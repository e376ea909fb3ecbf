"""Millpond on Spark: topics as DataFrames and streams, an exactly-once sink, and pipelines over stored
topics.

Spark reads and writes the catalog and the object store directly. Brokers carry none of the load, and none has
to be running. `import millpond.spark` is cheap: pyspark, numpy and numba are imported on first use.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millpond.spark.place import Place
    from millpond.spark.sessions import session

__all__ = ["Place", "session"]

_MODULES = {"Place": "millpond.spark.place", "session": "millpond.spark.sessions"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_MODULES[name]), name)
