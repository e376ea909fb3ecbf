"""Detects a fork after a client was used. gRPC's event loop has threads that a forked child does not have, so
its calls would never return there.

A child of a process that used a client therefore gets an error immediately. A child that is started fresh
(multiprocessing's "spawn" or "forkserver"), or was forked before the first client was created, is not affected.
"""

import os

from millpond.model.errors import InvalidRequest

REASON = (
    "this process was forked from one that used a client, which gRPC does not survive: "
    "fork before the first client is made, or start processes with multiprocessing's 'spawn'"
)


# gRPC's own handling of forks is meant for its synchronous API. In a process that uses the asynchronous one, it
# crashes one child in three, regardless of what the child does. Users who need it anyway can set the variable.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")


class _Uses:
    """Whether a client was used in this process, and whether one was used before it was forked."""

    here = False
    before_fork = False


def check() -> None:
    """Call before a client is used. Raises if the client would hang."""
    if _Uses.before_fork:
        raise InvalidRequest(reason=REASON)
    _Uses.here = True


def _in_child() -> None:
    _Uses.before_fork = _Uses.before_fork or _Uses.here


os.register_at_fork(after_in_child=_in_child)
