"""What reading costs without a broker: the same bytes from one file, checked, and sent to a process that drops them."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from millpond.records import crc32c

BATCH_BYTES: Final = 1_000_000
READ_BYTES: Final = 4 * BATCH_BYTES
DRAIN: Final = """
import socket, sys
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
connection, _ = listener.accept()
buffer = bytearray(1 << 22)
while connection.recv_into(buffer):
    pass
"""


def read_check_send(path: Path, megabytes: int) -> float:
    """MB/s of `preadv` into one buffer, CRC-32C of each megabyte, and `send`."""
    with subprocess.Popen([sys.executable, "-c", DRAIN], stdout=subprocess.PIPE, text=True) as drain:
        assert drain.stdout is not None
        port = int(drain.stdout.readline())
        descriptor = os.open(path, os.O_RDONLY)
        buffer = bytearray(READ_BYTES)
        view, done = memoryview(buffer), 0
        with socket.create_connection(("127.0.0.1", port)) as connection:
            began = time.perf_counter()
            while done < megabytes * 1_000_000:
                count = os.preadv(descriptor, [buffer], done)
                for start in range(0, count, BATCH_BYTES):
                    crc32c(view[start : min(start + BATCH_BYTES, count)])
                connection.sendall(view[:count])
                done += count
            connection.shutdown(socket.SHUT_WR)
        drain.wait()
        os.close(descriptor)
        return done / 1e6 / (time.perf_counter() - began)
