"""A Spark session that fits: this interpreter on every executor, UTC, Arrow, and a fast start where asked for.

The fast start halves the time to the first result on one machine: the JVM compiles with C1 only, collects garbage
with one thread, and maps its classes from an archive that the session before it left behind. Long jobs whose work is in
the JVM itself (joins, aggregations of much data) are better off without it.
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

QUICK: Final = (
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
"""A JVM writes its archive for a few seconds after its Python has gone."""


def session(
    name: str = "millpond",
    *,
    master: str | None = None,
    config: Mapping[str, str] | None = None,
    fast_start: bool = False,
    log_level: str = "WARN",
    jvm_log: Path | None = None,
) -> "SparkSession":
    """The running session, or a new one on `master` (default: all cores of this machine).

    `config` is Spark's own; it wins over what is set here. What the JVM and the executors on this machine have to say
    goes to the file `jvm_log`, if one is given, and not to our standard error.
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
    java += [*QUICK, *_class_archive()] if fast_start else []
    given[JAVA_OPTIONS] = " ".join([*java, given.get(JAVA_OPTIONS, "")]).strip()
    for key, value in {**DEFAULTS, **given}.items():
        builder = builder.config(key, value)
    with _standard_error_to(jvm_log):
        built = builder.getOrCreate()
    make_active(built)
    return built


def make_active(spark: "SparkSession") -> None:
    """Make it this thread's session. Spark looks for a data source of Python's there when something is written, and
    only the thread that made the session has it by itself."""
    jvm: Any = getattr(
        spark, "_jvm", None
    )  # pyspark has no public way; a session of Spark Connect has no JVM here
    if jvm is not None:
        jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)  # noqa: SLF001


@contextmanager
def _standard_error_to(path: Path | None) -> Iterator[None]:
    """A process that is started meanwhile writes there for the rest of its life."""
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
    """Whether it is this machine alone: then nothing listens but on loopback."""
    return master.startswith("local")


def _check_installed() -> None:
    try:
        import pyspark  # noqa: F401  # is it there?
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
    """Use the archive of an earlier session, else leave one: the JVM writes it as it ends, under a name of its own."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "millpond"
    archive = folder / f"spark-{_installation()}.jsa"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _adopt(archive)
    except OSError:
        return []  # nowhere to keep it: start as usual
    if archive.exists():
        return [f"-XX:SharedArchiveFile={archive}"]
    return [f"-XX:ArchiveClassesAtExit={archive}.{os.getpid()}"]


def _adopt(archive: Path) -> None:
    """A session that has ended may have left an archive; one that is still being written belongs to nobody yet. The
    JVM itself refuses an archive that is damaged or another Java's, and goes on without."""
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
    """Which Java and which Spark: an archive fits no other."""
    import pyspark

    java = str(Path(java_command() or "").resolve())
    return hashlib.sha256(f"{java} {pyspark.__version__} {pyspark.__file__}".encode()).hexdigest()[:16]
