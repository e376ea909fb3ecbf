"""Where and how peers are installed: into a temporary folder next to the final one, which is renamed when it
is complete."""

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = Path(__file__).resolve().parent
INSTALL_SECONDS_MAX = 1_800
REASON_CHARACTERS_MAX = 300


class Unavailable(Exception):
    """A peer cannot be installed here; the message is one sentence with the reason."""


def home() -> Path:
    """`.peers/` of the project, or `MILLPOND_PEERS_HOME`."""
    return Path(os.environ.get("MILLPOND_PEERS_HOME") or ROOT / ".peers").resolve()


def program(name: str, purpose: str) -> str:
    """The path of a program that must be on the PATH."""
    found = shutil.which(name)
    if found is None:
        raise Unavailable(f"{purpose} needs `{name}`, which is not on the PATH.")
    return found


def installed(folder: str, build: Callable[[Path], None]) -> Path:
    """The folder of that name; `build` creates it if it does not exist. A build that fails leaves nothing
    behind."""
    target = home() / folder
    if target.exists():
        return target
    part = target.with_name(f"{folder}.part-{os.getpid()}")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        build(part)
        part.rename(target)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return target


def run(
    purpose: str,
    command: Sequence[str | Path],
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Run an installer to its end. If it fails, the reason is the first line of its output that mentions an
    error, or else its first line."""
    try:
        done = subprocess.run(
            [str(part) for part in command],
            cwd=folder,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{purpose}: `{command[0]}` did not end in {INSTALL_SECONDS_MAX} s.") from None
    if done.returncode != 0:
        raise Unavailable(f"{purpose}: {_reason(done.stderr + done.stdout)}")
    return done.stdout


def _reason(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    telling = [line for line in lines if "error" in line.lower() or line.startswith("E:")]
    chosen = (telling or lines or ["it failed without a word"])[0]
    return chosen[:REASON_CHARACTERS_MAX].rstrip(".") + "."
