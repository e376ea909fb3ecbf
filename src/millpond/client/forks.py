"""gRPC's event loop has threads, and a forked child has not got them: there, its calls would never return.

So a child of a process that used a client is told so at once. One that is started anew (multiprocessing's "spawn" or
"forkserver"), or forked before any client was made, is not concerned.
"""

import os

from millpond.model.errors import InvalidRequest

REASON = (
    "this process was forked from one that used a client, which gRPC does not survive: "
    "fork before the first client is made, or start processes with multiprocessing's 'spawn'"
)


# gRPC's own handling of forks, meant for its synchronous API, crashes one child in three of a process that uses the
# asynchronous one, whatever the child does. Who wants it all the same sets the variable.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")


class _Uses:
    """Whether a client was used in this process, and whether that was before it was forked."""

    here = False
    before_fork = False


def check() -> None:
    """A client is about to be used. Raises if it would hang."""
    if _Uses.before_fork:
        raise InvalidRequest(reason=REASON)
    _Uses.here = True


def _in_child() -> None:
    _Uses.before_fork = _Uses.before_fork or _Uses.here


os.register_at_fork(after_in_child=_in_child)
