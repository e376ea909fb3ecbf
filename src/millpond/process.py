"""Two knobs of the process that every broker turns. Both are process-wide, and harmless to other code.

* The interpreter lets a thread wait 5 ms for another one by default; the writer thread would lose that much after
  each SQL statement while the event loop is busy.
* glibc returns every buffer above 128 KiB to the kernel at once and takes fresh, unmapped pages for the next one;
  a log moves nothing but such buffers, and page faults would cost several times what copying them does.
"""

import ctypes
import sys
from typing import Final

SWITCH_INTERVAL_S: Final = 0.0005
M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
MAPPED_BYTES: Final = 32 * 1024 * 1024
"""The size from which buffers are mapped singly; glibc takes no larger threshold."""
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
