"""Instances of every message in every version: with every field filled, and with as little as the wire allows."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from millpond.protocol import REQUESTS, WireMessage, encode
from millpond.protocol.schema import FieldSpec, Fixed, Sized, Struct, fields_in

MESSAGES = [kind for request in REQUESTS.values() for kind in (request, request.response)]


def in_every_version(test: Callable[..., None]) -> Callable[..., None]:
    """Makes of a test of (kind, version, …) one test for each message, over all of its versions."""

    def over_versions(kind: type[WireMessage], **fixtures: Any) -> None:
        for version in range(kind.versions.first, kind.versions.last + 1):
            try:
                test(kind, version, **fixtures)
            except BaseException as error:
                error.add_note(f"{kind.__name__}, version {version}")
                raise

    parameters = [each for each in inspect.signature(test).parameters.values() if each.name != "version"]
    over_versions.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    over_versions.__name__, over_versions.__doc__ = test.__name__, test.__doc__
    return pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)(over_versions)


def sample(kind: type[Struct], version: int) -> Any:
    """No field is empty, null or left at its default."""
    return kind(**{spec.name: _field(spec, version) for spec in fields_in(kind, version)})


def written(kind: type[WireMessage], version: int) -> bytes:
    return b"".join(encode(sample(kind, version), version).buffers)


def _field(spec: FieldSpec, version: int) -> Any:
    return [_value(spec, version) for _ in range(2)] if spec.array else _value(spec, version)


def _value(spec: FieldSpec, version: int) -> Any:
    match spec.kind:
        case Fixed(format="?"):
            return not spec.default if isinstance(spec.default, bool) else True
        case Fixed(format="16s"):
            return bytes(range(1, 17))
        case Fixed():
            return 5
        case Sized.TEXT:
            return "naïve"
        case Sized.RECORD_PARTS:
            return [memoryview(b"batches")]
        case Sized():
            return b"payload"
    assert isinstance(spec.kind, type)
    return sample(spec.kind, version)


def smallest(kind: type[Struct], version: int) -> Any:
    """Everything null or empty that may be, and no tags."""
    untagged = [spec for spec in fields_in(kind, version) if spec.tag is None]
    return kind(**{spec.name: _least(spec, version) for spec in untagged})


def _least(spec: FieldSpec, version: int) -> Any:
    if spec.nullable:
        return None
    if spec.array:
        return []
    match spec.kind:
        case Sized.TEXT:
            return ""
        case Sized():
            return b""
        case Fixed():
            return _value(spec, version)
    assert isinstance(spec.kind, type)
    return smallest(spec.kind, version)
