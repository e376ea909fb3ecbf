"""Process-wide settings. Every broker changes two, which are harmless to other code:

* By default the interpreter lets a thread wait 5 ms for another one. The writer thread would lose that much after
  each SQL statement while the event loop is busy.
* glibc returns every buffer above 128 KiB to the kernel immediately and maps fresh pages for the next one. A log
  moves almost only such buffers, and page faults would cost several times as much as copying them.

A process that does nothing else than run a broker changes two more: how it collects garbage, and that it ends with
its supervisor.
"""

import ctypes
import gc
import os
import signal
import sys
from typing import Final

SWITCH_INTERVAL_S: Final = 0.0005
M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
MAPPED_BYTES: Final = 32 * 1024 * 1024
"""Buffers from this size on are mapped individually; glibc allows no larger threshold."""
PR_SET_PDEATHSIG: Final = 1
COLLECTION_THRESHOLDS: Final = (5_000, 10, 10)
"""The first is 700 in CPython: a request that names 99,000 partitions would be looked through 140 times, and every
hundredth time together with all other objects, which took 50 to 100 ms."""
KEPT_BYTES: Final = 256 * 1024 * 1024
"""Freed memory that is kept for later buffers: more than the tail cache and the buffers hold together."""


def tune_process() -> None:
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return  # not glibc
    mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES)
    mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)


def collect_rarely() -> None:
    """Garbage collection stops the event loop. Keep the objects that the process has made so far out of it, and let it
    run less often. To be called when everything is loaded."""
    gc.freeze()
    gc.set_threshold(*COLLECTION_THRESHOLDS)


def end_with_parent(parent: int) -> None:
    """Have the kernel send SIGTERM when the parent process exits, or send it now if it has exited already. On
    systems without this feature (not Linux), workers must be stopped separately if the supervisor is killed."""
    try:
        prctl = ctypes.CDLL(None).prctl
    except (OSError, AttributeError):
        return
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)
