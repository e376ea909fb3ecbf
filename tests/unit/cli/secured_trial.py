"""A new user in an empty directory, who follows what `millpond security init` prints, block by block."""

import errno
import os
import subprocess
import sys
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from pathlib import Path

from click.testing import CliRunner
from tests.ports import free_port
from tests.unit.cli.conftest import COMMAND, LONGEST_S, environment, watched

from millpond.cli.main import cli

ATTEMPTS = 5
IN_USE = os.strerror(errno.EADDRINUSE)
TITLES = {
    "start": "Start the broker:",
    "password": "In another terminal",
    "command line": "Command line:",
    "millpond": "Python (Millpond's own client library):",
    "librdkafka": "librdkafka and kcat",
    "confluent": "Python (confluent-kafka):",
    "java": "Java",
    "curl": "curl:",
}


@dataclass
class Trial:
    folder: Path
    printed: str
    broker: subprocess.Popen | None = None

    def block(self, name):
        """The commands below a title."""
        lines = iter(self.printed.splitlines())
        titles = tuple(TITLES.values())
        assert any(line.startswith(TITLES[name]) for line in lines), f"no title {TITLES[name]}"
        found = []
        for line in lines:
            if line.startswith(titles):
                break
            found.append(line)
        return "\n".join(found).strip() + "\n"

    @property
    def password(self):
        [line] = [line for line in self.printed.splitlines() if "password (shown only now): " in line]
        return line.rpartition(": ")[2]

    def paste(self, commands, given=""):
        """Run commands in a shell, whose first failure ends it. Returns what they print."""
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", commands],
            input=given,
            capture_output=True,
            text=True,
            timeout=LONGEST_S,
            cwd=self.folder,
            env=self.environment(),
            check=False,
        )
        assert done.returncode == 0, f"{commands}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def run(self, *arguments, given=""):
        """A `millpond` command that needs no shell, in this process. Returns (exit code, what it prints)."""
        kept = {name: None for name in os.environ if name.startswith("MILLPOND_")}
        with chdir(self.folder):
            done = CliRunner().invoke(
                cli, arguments, input=given, env={**kept, **self._home()}, prog_name="millpond"
            )
        return done.exit_code, done.output

    def environment(self):
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return environment(PATH=path, **self._home())

    def _home(self):
        home = str(self.folder / "home")
        return {"HOME": home, "XDG_CONFIG_HOME": f"{home}/.config"}


@contextmanager
def secured_trial(folder):
    """`millpond security init` and the broker that it says how to start; the password is stored as it says."""
    for attempt in range(ATTEMPTS):
        with _started(folder / f"attempt-{attempt}") as trial:
            if trial is not None:
                trial.paste(trial.block("password"), given=f"{trial.password}\n")
                yield trial
                trial.broker.terminate()
                trial.broker.wait(LONGEST_S)
                return
    raise AssertionError(f"{ATTEMPTS} times one of three free ports was taken before the broker had it")


@contextmanager
def _started(folder):
    """Yields None if another process has taken one of the ports meanwhile."""
    ports = [f"--set={each}_listen=127.0.0.1:{free_port()}" for each in ("kafka", "grpc", "http")]
    (folder / "home").mkdir(parents=True)
    trial = Trial(folder, "")
    command = [*COMMAND, "security", "init", *ports]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=folder, env=trial.environment(), check=True
    )
    trial.printed = done.stdout
    starting = ["bash", "-c", f"exec {trial.block('start')}"]
    log = folder / "broker.log"
    with log.open("w") as errors:
        pipes = {"stdout": subprocess.PIPE, "stderr": errors, "cwd": folder, "env": trial.environment()}
        broker = subprocess.Popen(starting, **pipes, text=True)
    with watched(broker):
        trial.broker = broker
        is_ready = any(line.startswith("  http ") for line in iter(broker.stdout.readline, ""))
        assert is_ready or IN_USE in log.read_text(), log.read_text()
        yield trial if is_ready else None
