"""The checks of `millpond doctor`: this machine, the data directory, the store and the catalog."""

import contextlib
import fcntl
import logging
import os
import platform
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import apsw

from millpond.cli.output import size_text
from millpond.cli.packages import EXTRAS, install_command, is_installed, listed, missing_from
from millpond.model.errors import MillpondError, NotInstalled
from millpond.model.ids import new_session
from millpond.model.urls import redacted_url
from millpond.objects.open import open_store
from millpond.objects.retrying import RetryPolicy
from millpond.settings import Settings
from millpond.storage import open_database

PYTHON_MIN: Final = (3, 11)
SQLITE_MIN: Final = (3, 50)
JAVA_MIN: Final = 17
JAVA_S: Final = 10.0
FREE_BYTES_LOW: Final = 1024**3
FREE_BYTES_TOO_LOW: Final = 100 * 1024**2
SYNCS: Final = 20
SYNC_BYTES: Final = 4096
SYNC_MS_SLOW: Final = 20.0
CLOCK_MIN_S: Final = 1_767_225_600  # 2026-01-01, before this was written
CLOCK_SKEW_S: Final = 300
FILES_BESIDE_CONNECTIONS: Final = 200
PURPOSES: Final = {
    "s3": "stores on S3, GCS and Azure",
    "postgres": "a catalog in PostgreSQL",
    "spark": "Spark pipelines",
    "tables": "Delta, Iceberg and Avro in Spark pipelines",
}


@dataclass(frozen=True, slots=True)
class CheckResult:
    check: str
    status: Literal["ok", "warning", "problem"]
    found: str
    advice: str = ""


# -- the machine ----------------------------------------------------------------------------------------------


def of_machine() -> list[CheckResult]:
    return [_python(), _sqlite(), _clock(), *(_extra(name) for name in PURPOSES), *_java()]


def _python() -> CheckResult:
    version = platform.python_version()
    if sys.version_info < PYTHON_MIN:
        return CheckResult("python", "problem", version, "install Python 3.11 or newer")
    return CheckResult("python", "ok", version)


def _sqlite() -> CheckResult:
    version = apsw.sqlite_lib_version()
    if tuple(int(part) for part in version.split(".")[:2]) < SQLITE_MIN:
        return CheckResult("sqlite", "problem", version, "pip install --upgrade apsw")
    return CheckResult("sqlite", "ok", version)


def _clock() -> CheckResult:
    now = time.time()
    shown = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
    if now < CLOCK_MIN_S:
        return CheckResult("clock", "problem", shown, "it is slow: set it (NTP), or messages get wrong times")
    return CheckResult("clock", "ok", shown)


def _extra(name: str) -> CheckResult:
    """A missing extra is fine; a partly installed one is not."""
    check, packages, missing = f"extra {name}", EXTRAS[name], missing_from(name)
    if not missing:
        return CheckResult(check, "ok", f"installed: {', '.join(packages)}")
    if len(missing) == len(packages):
        return CheckResult(
            check, "ok", f"not installed: {', '.join(missing)}; only needed for {PURPOSES[name]}"
        )
    return CheckResult(check, "warning", f"{listed(missing)} not installed", install_command(name))


def _java() -> list[CheckResult]:
    """Java; only Spark needs it."""
    if not is_installed("pyspark"):
        return []
    version = _java_version()
    if version is None:
        return [
            CheckResult(
                "java", "warning", "not found", f"install Java {JAVA_MIN} for Spark, or set JAVA_HOME"
            )
        ]
    if version < JAVA_MIN:
        return [
            CheckResult("java", "warning", str(version), f"Spark needs Java {JAVA_MIN}: set JAVA_HOME to one")
        ]
    return [CheckResult("java", "ok", str(version))]


def _java_version() -> int | None:
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if program is None:
        return None
    try:
        said = subprocess.run(  # noqa: S603  # the program that Spark would run
            [program, "-version"], capture_output=True, text=True, timeout=JAVA_S, check=False
        ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(found[1]) if found else None


def of_limits(connections_max: int) -> list[CheckResult]:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections_max + FILES_BESIDE_CONNECTIONS
    if soft != resource.RLIM_INFINITY and soft < needed:
        advice = f"`ulimit -n {needed}` before the broker starts, or a smaller connections_max"
        return [
            CheckResult("open files", "warning", f"{soft} may be open, {connections_max} may connect", advice)
        ]
    return [CheckResult("open files", "ok", "unlimited" if soft == resource.RLIM_INFINITY else str(soft))]


# -- the data directory ---------------------------------------------------------------------------------------


def of_data_dir(path: Path) -> list[CheckResult]:
    path = path.absolute()
    nearest = next(folder for folder in (path, *path.parents) if folder.exists())
    if not nearest.is_dir():
        return [CheckResult("data", "problem", f"{nearest} is no directory", "choose another --data-dir")]
    try:
        delays_ms = _sync_delays_ms(nearest)
    except OSError as error:
        advice = "choose another --data-dir, or let this user write there"
        return [CheckResult("data", "problem", f"{nearest} cannot be written: {error.strerror}", advice)]
    shown = str(path) if nearest == path else f"{path} will be created"
    return [CheckResult("data", "ok", shown), _free(nearest), _fsync(delays_ms), *_lock(path), *_newest(path)]


def _free(folder: Path) -> CheckResult:
    free = shutil.disk_usage(folder).free
    status: Literal["ok", "warning", "problem"] = "ok"
    if free < FREE_BYTES_LOW:
        status = "problem" if free < FREE_BYTES_TOO_LOW else "warning"
    advice = "" if status == "ok" else "make room, choose another --data-dir, or set a shorter retention"
    return CheckResult("free space", status, size_text(free), advice)


def _sync_delays_ms(folder: Path) -> list[float]:
    delays = []
    with tempfile.TemporaryFile(dir=folder, prefix=".millpond-doctor-") as file:
        for _ in range(SYNCS):
            file.write(bytes(SYNC_BYTES))
            file.flush()
            started = time.perf_counter()
            os.fsync(file.fileno())
            delays.append((time.perf_counter() - started) * 1000)
    return delays


def _fsync(delays_ms: list[float]) -> CheckResult:
    median, longest = statistics.median(delays_ms), max(delays_ms)
    found = f"{median:.2f} ms (longest {longest:.2f} ms)"
    if median > SYNC_MS_SLOW:
        return CheckResult("fsync", "warning", found, "a message takes at least this long: use a faster disk")
    return CheckResult("fsync", "ok", found)


def _lock(path: Path) -> Iterator[CheckResult]:
    try:
        descriptor = os.open(path / "broker.lock", os.O_RDWR)
    except OSError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield CheckResult("lock", "ok", "no broker is running on it")
    except OSError:
        yield CheckResult("lock", "ok", "a broker is running on it; a second one would be refused")
    finally:
        os.close(descriptor)


def _newest(path: Path) -> Iterator[CheckResult]:
    """Whether data comes from the future: the clock was set back, and nothing expires until it has caught up."""
    with contextlib.suppress(OSError):
        ahead_s = (path / "catalog.db").stat().st_mtime - time.time()
        if ahead_s > CLOCK_SKEW_S:
            found = f"the catalog was written {ahead_s:.0f} s in the future"
            yield CheckResult("clock and data", "warning", found, "check the clock: was it set back?")


# -- store and catalog ----------------------------------------------------------------------------------------


def of_storage_and_catalog(settings: Settings) -> Iterator[CheckResult]:
    if settings.storage:
        yield _storage(settings.storage)
    if settings.catalog:
        yield _catalog(settings)


def _storage(url: str) -> CheckResult:
    shown = redacted_url(url)
    if url.startswith("file://"):
        return of_data_dir(Path(url.removeprefix("file://")))[0]
    try:
        store = open_store(url, new_session(), retry=RetryPolicy(attempts_max=1))
        with contextlib.closing(store):
            next(store.list("journal/"), None)
    except NotInstalled as error:
        return _not_installed("storage", error)
    except MillpondError as error:
        return CheckResult("storage", "problem", str(error), "check the URL, the credentials and the network")
    return CheckResult("storage", "ok", f"{shown} answers")


def _catalog(settings: Settings) -> CheckResult:
    logging.getLogger("psycopg").setLevel(logging.CRITICAL)  # it would log each of its attempts
    try:
        database = open_database(settings)
        with contextlib.closing(database), database.read() as transaction:
            transaction.rows("SELECT 1")
    except NotInstalled as error:
        return _not_installed("catalog", error)
    except MillpondError as error:
        return CheckResult(
            "catalog", "problem", str(error), "check the URL, the password and that it is running"
        )
    return CheckResult("catalog", "ok", "it answers")


def _not_installed(check: str, error: NotInstalled) -> CheckResult:
    return CheckResult(
        check, "problem", f"{error.facts['what']} is not installed", str(error.facts["advice"])
    )
