"""A temporary broker: a real `millpond serve` in another process, on free ports of this machine."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from millpond.model.addresses import INTERFACES
from millpond.model.errors import CannotStart

ANY_PORT: Final = "127.0.0.1:0"
STOP_S: Final = 20.0


class TemporaryBroker:
    """`with TemporaryBroker(folder) as broker:` starts it and drains it. `listeners` holds its addresses by
    interface."""

    def __init__(self, folder: Path, interfaces: Mapping[str, str] | None = None) -> None:
        self._folder = folder
        self._interfaces = interfaces if interfaces is not None else dict.fromkeys(INTERFACES, ANY_PORT)
        self._process: subprocess.Popen[str] | None = None
        self.listeners: dict[str, str] = {}

    def start(self) -> None:
        """Returns when the broker is ready. A restart uses the same ports."""
        listening = [
            f"--{interface}={self.listeners.get(interface, self._interfaces.get(interface, ''))}"
            for interface in INTERFACES
        ]
        with (self._folder / "broker.log").open("a") as log:
            self._process = subprocess.Popen(  # noqa: S603  # this program itself
                [
                    sys.executable,
                    "-m",
                    "millpond",
                    "serve",
                    "--json",
                    f"--data-dir={self.data_dir}",
                    *listening,
                ],
                stdout=subprocess.PIPE,
                stderr=log,
                stdin=subprocess.DEVNULL,
                text=True,
                env=_environment(),
                start_new_session=True,  # Ctrl-C is for us; we stop it
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            raise CannotStart(f"A broker for this could not be started: {self._last_log_line()}")
        self.listeners = json.loads(line)["listeners"]

    def kill(self) -> None:
        """End the process with SIGKILL: nothing is flushed or reported."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    @property
    def data_dir(self) -> Path:
        return self._folder / "data"

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()

    def _last_log_line(self) -> str:
        lines = (self._folder / "broker.log").read_text().strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _environment() -> dict[str, str]:
    """Without the user's settings, so that this broker has the defaults."""
    return {name: value for name, value in os.environ.items() if not name.startswith("MILLPOND_")}
