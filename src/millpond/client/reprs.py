"""How clients and messages are shown to a programmer: on one line, with a limit on what they carry."""

from typing import Final

SHOWN_BYTES_MAX: Final = 60


def client_repr(name: str, *, is_closed: bool, **parts: object) -> str:
    """For example `<Producer topic='orders' address='127.0.0.1:9999' closed>`."""
    shown = [f"{key}={value!r}" for key, value in parts.items()]
    return f"<{' '.join([name, *shown, *(['closed'] if is_closed else [])])}>"


def sync_repr(client: object) -> str:
    """The same for a client that wraps an asyncio client."""
    return repr(client).replace("<Async", "<", 1)


def bytes_repr(value: bytes | None) -> str:
    """The beginning of a value, and its size if there is more."""
    if value is None or len(value) <= SHOWN_BYTES_MAX:
        return repr(value)
    return f"{value[:SHOWN_BYTES_MAX]!r}… ({len(value)} bytes)"
