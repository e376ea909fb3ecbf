"""Encodes messages to buffers and decodes them. The codec of a message version is compiled on first use and cached."""

import struct
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from millpond.model.buffers import Buffer
from millpond.model.errors import MalformedMessage
from millpond.protocol.decoder import write_decoder
from millpond.protocol.encoder import write_encoder
from millpond.protocol.schema import WireMessage

M = TypeVar("M", bound=WireMessage)

FieldDecoder = Callable[[Buffer, int, int, memoryview], tuple[Any, int]]
Encoder = Callable[[WireMessage, bytearray], list[Buffer]]

_DECODERS: dict[tuple[type[WireMessage], int], FieldDecoder] = {}
_ENCODERS: dict[tuple[type[WireMessage], int], Encoder] = {}


class Encoded(NamedTuple):
    """An encoded message, ready for `writelines`. Record buffers are those of the message, not copies."""

    buffers: list[Buffer]
    size: int


def decode(kind: type[M], version: int, data: Buffer, position: int = 0, *, exact: bool = True) -> M:
    """Decode the message that starts at `position`. With `exact`, it must fill `data` to the end. Its records are
    views of `data`, so `data` must not change while they are in use. Raises only MalformedMessage for bad input."""
    read = decoder(kind, version)
    view = memoryview(data)
    if isinstance(data, bytearray):
        data = view  # slicing a bytearray would copy
    try:
        message, position = read(data, position, len(data), view)
    except (struct.error, IndexError):
        raise MalformedMessage(reason=f"{kind.__name__} v{version} is cut short") from None
    except UnicodeDecodeError:
        raise MalformedMessage(reason=f"{kind.__name__} v{version} holds text that is not UTF-8") from None
    except MalformedMessage as error:
        reason = f"{kind.__name__} v{version}: {error.facts['reason']}"
        raise MalformedMessage(reason=reason) from None
    if exact and position != len(data):
        reason = (
            f"{kind.__name__} v{version} is followed by {len(data) - position} bytes that are not part of it"
        )
        raise MalformedMessage(reason=reason)
    assert isinstance(message, kind)
    return message


def encode(message: WireMessage, version: int, head: bytes = b"") -> Encoded:
    """Encode `head` and then the message. Raises ValueError if a value does not fit its field, which is a bug
    in the broker."""
    write = encoder(type(message), version)
    try:
        buffers = write(message, bytearray(head))
    except (struct.error, AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"{type(message).__name__} v{version} cannot be written: {error}") from error
    return Encoded(buffers, sum(map(len, buffers)))


def decoder(kind: type[WireMessage], version: int) -> FieldDecoder:
    try:
        return _DECODERS[kind, version]
    except KeyError:
        _check_version(kind, version)
        made = _DECODERS[kind, version] = write_decoder(kind, version, version in kind.flexible)
        return made


def encoder(kind: type[WireMessage], version: int) -> Encoder:
    try:
        return _ENCODERS[kind, version]
    except KeyError:
        _check_version(kind, version)
        made = _ENCODERS[kind, version] = write_encoder(kind, version, version in kind.flexible)
        return made


def _check_version(kind: type[WireMessage], version: int) -> None:
    """The request dispatcher has already rejected unsupported versions, so a failure here is a bug in the broker."""
    if version not in kind.versions:
        raise ValueError(f"{kind.__name__} has versions {kind.versions}, not {version}")
