"""Creates Spark sessions with suitable settings: this interpreter on every executor, UTC, Arrow, and
optionally a fast start.

The fast start halves the time to the first result on one machine: the JVM compiles with C1 only, collects
garbage with one thread, and maps its classes from an archive that an earlier session wrote. Do not use it for
long jobs whose work is in the JVM itself (joins, large aggregations).
"""

import hashlib
import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from millpond.model.errors import NotInstalled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAST_START_OPTIONS: Final = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-Xlog:cds=off",
    "-Xlog:cds+dynamic=off",
)
JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
ALL_CORES: Final = "local[*]"
STANDARD_ERROR: Final = 2
JAVA: Final = "Java 17 or 21"
LOOPBACK: Final = "127.0.0.1"
DEFAULTS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 2)),
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
LOGGING: Final = Path(__file__).with_name("log4j2.properties")
ARCHIVE_SETTLES_S: Final = 10
"""A JVM keeps writing its archive for a few seconds after its Python process has exited."""


def session(
    name: str = "millpond",
    *,
    master: str | None = None,
    config: Mapping[str, str] | None = None,
    fast_start: bool = False,
    log_level: str = "WARN",
    jvm_log: Path | None = None,
) -> "SparkSession":
    """Return the running session, or create one on `master` (default: all cores of this machine).

    `config` holds Spark's own settings and takes precedence over the defaults here. If `jvm_log` is given,
    the output of the JVM and of the executors on this machine goes to that file instead of our standard
    error.
    """
    _check_installed()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    chosen = master or ALL_CORES
    if is_local(chosen):
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name).master(chosen)
    given = dict(config or {})
    java = [f"-Dlog4j2.configurationFile=file:{LOGGING}", f"-Dmillpond.log.level={log_level}"]
    java += [*FAST_START_OPTIONS, *_class_archive()] if fast_start else []
    given[JAVA_OPTIONS] = " ".join([*java, given.get(JAVA_OPTIONS, "")]).strip()
    for key, value in {**DEFAULTS, **given}.items():
        builder = builder.config(key, value)
    with _standard_error_to(jvm_log):
        built = builder.getOrCreate()
    make_active(built)
    return built


def make_active(spark: "SparkSession") -> None:
    """Make it this thread's active session. On a write, Spark looks up Python data sources in the active
    session, and only the thread that created the session has it set."""
    jvm: Any = getattr(
        spark, "_jvm", None
    )  # pyspark has no public API for this; a Spark Connect session has no JVM here
    if jvm is not None:
        jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)  # noqa: SLF001


@contextmanager
def _standard_error_to(path: Path | None) -> Iterator[None]:
    """Redirect standard error to this file. A process started inside the block inherits it for its lifetime."""
    if path is None:
        yield
        return
    sys.stderr.flush()
    ours = os.dup(STANDARD_ERROR)
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.dup2(target, STANDARD_ERROR)
        yield
    finally:
        os.dup2(ours, STANDARD_ERROR)
        os.close(ours)
        os.close(target)


def is_local(master: str) -> bool:
    """Whether the master is this machine alone; if so, Spark listens on loopback only."""
    return master.startswith("local")


def _check_installed() -> None:
    try:
        import pyspark  # noqa: F401  # only checks that it is installed
    except ImportError as error:
        raise NotInstalled(
            purpose="Spark", what="the Python package pyspark", advice="pip install 'millpond[spark]'"
        ) from error
    if java_command() is None:
        raise NotInstalled(purpose="Spark", what=JAVA, advice="install a Java runtime or set JAVA_HOME")


def java_command() -> str | None:
    """The `java` that Spark will start, or None."""
    home = os.environ.get("JAVA_HOME")
    if home:
        return shutil.which(str(Path(home) / "bin" / "java"))
    return shutil.which("java")


def _class_archive() -> list[str]:
    """JVM options that use the class archive of an earlier session; without one, options that write it: the
    JVM does so at exit, to a name that contains this process id."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "millpond"
    archive = folder / f"spark-{_installation()}.jsa"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _adopt(archive)
    except OSError:
        return []  # no place to keep the archive: start without one
    if archive.exists():
        return [f"-XX:SharedArchiveFile={archive}"]
    return [f"-XX:ArchiveClassesAtExit={archive}.{os.getpid()}"]


def _adopt(archive: Path) -> None:
    """Rename an archive that an ended session left to its final name. An archive that is still being written
    is left alone. The JVM itself rejects an archive that is damaged or comes from another Java, and starts
    without it."""
    for left in archive.parent.glob(f"{archive.name}.*"):
        if not _is_running(int(left.suffix[1:])) and time.time() - left.stat().st_mtime > ARCHIVE_SETTLES_S:
            left.replace(archive)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _installation() -> str:
    """Identifies the Java and Spark installation: a class archive is valid for exactly one."""
    import pyspark

    java = str(Path(java_command() or "").resolve())
    return hashlib.sha256(f"{java} {pyspark.__version__} {pyspark.__file__}".encode()).hexdigest()[:16]
