"""A new user in an empty directory, who follows what `millpond security init` prints, block by block."""

import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.ports import free_port
from tests.unit.cli.conftest import COMMAND, LONGEST_S, environment, watched

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

    def environment(self):
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        home = str(self.folder / "home")
        return environment(PATH=path, HOME=home, XDG_CONFIG_HOME=f"{home}/.config")


@contextmanager
def secured_trial(folder):
    """`millpond security init` and the broker that it says how to start; the password is stored as it says."""
    ports = [f"--set={each}_listen=127.0.0.1:{free_port()}" for each in ("kafka", "grpc", "http")]
    (folder / "home").mkdir()
    trial = Trial(folder, "")
    command = [*COMMAND, "security", "init", *ports]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=folder, env=trial.environment(), check=True
    )
    trial.printed = done.stdout
    starting = ["bash", "-c", f"exec {trial.block('start')}"]
    pipes = {"stdout": subprocess.PIPE, "cwd": folder, "env": trial.environment(), "text": True}
    with watched(subprocess.Popen(starting, **pipes)) as broker:
        trial.broker = broker
        while not broker.stdout.readline().startswith("  http "):
            assert broker.poll() is None
        trial.paste(trial.block("password"), given=f"{trial.password}\n")
        yield trial
        broker.terminate()
        broker.wait(LONGEST_S)
