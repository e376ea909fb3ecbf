"""Two knobs of the process that every broker turns, and a third for those that a supervisor started. All are
process-wide, and harmless to other code.

* The interpreter lets a thread wait 5 ms for another one by default; the writer thread would lose that much after
  each SQL statement while the event loop is busy.
* glibc returns every buffer above 128 KiB to the kernel at once and takes fresh, unmapped pages for the next one;
  a log moves nothing but such buffers, and page faults would cost several times what copying them does.
"""

import ctypes
import os
import signal
import sys
from typing import Final

SWITCH_INTERVAL_S: Final = 0.0005
M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
MAPPED_BYTES: Final = 32 * 1024 * 1024
"""The size from which buffers are mapped singly; glibc takes no larger threshold."""
PR_SET_PDEATHSIG: Final = 1
KEPT_BYTES: Final = 256 * 1024 * 1024
"""Freed memory that is kept for the next buffers: it is more than tail and buffers hold together."""


def tune_process() -> None:
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return  # not glibc
    mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES)
    mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)


def end_with_parent(parent: int) -> None:
    """Have the kernel send SIGTERM when the process that started this one is gone, or send it now if it is already.
    Where there is no such thing (not Linux), whoever kills the supervisor ends its workers himself."""
    try:
        prctl = ctypes.CDLL(None).prctl
    except (OSError, AttributeError):
        return
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)
