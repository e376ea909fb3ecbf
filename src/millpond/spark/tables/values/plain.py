"""Values as bytes and as text. Any byte string is valid as bytes, but not every one is valid text."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


def as_is(values: "pa.Array") -> "tuple[pa.Array, pa.Array]":
    import pyarrow as pa

    return values, pa.nulls(len(values), pa.string())


def as_text(values: "pa.Array") -> "tuple[pa.Array, pa.Array]":
    """Arrow checks the whole batch together; only a batch with a bad value is decoded value by value."""
    import pyarrow as pa

    try:
        return values.cast(pa.string()), pa.nulls(len(values), pa.string())
    except pa.ArrowInvalid:
        return decode_each(values, pa.string(), bytes.decode)


def decode_each(
    values: "pa.Array", kind: "pa.DataType", decode: Callable[[bytes], Any]
) -> "tuple[pa.Array, pa.Array]":
    """Decode the values one by one, for encodings that only Python can decode. An error of `decode` is
    reported for that value only."""
    import pyarrow as pa

    decoded: list[Any] = []
    errors: list[str | None] = []
    for value in values.to_pylist():
        result, error = (None, None) if value is None else _attempt(decode, value)
        decoded.append(result)
        errors.append(error)
    try:
        return pa.array(decoded, type=kind), pa.array(errors, type=pa.string())
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return _convert_each(decoded, errors, kind)


def _attempt(decode: Callable[[bytes], Any], value: bytes) -> tuple[Any, str | None]:
    try:
        return decode(value), None
    except Exception as error:  # noqa: BLE001  # values may be any bytes, and decoders raise any exception
        return None, described(error)


def _convert_each(
    decoded: Sequence[Any], errors: Sequence[str | None], kind: "pa.DataType"
) -> "tuple[pa.Array, pa.Array]":
    """A decoded value does not fit its column, for example a decimal with too many digits: find out which
    one."""
    import pyarrow as pa

    columns, reasons = [], list(errors)
    for number, value in enumerate(decoded):
        try:
            columns.append(pa.array([value], type=kind))
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            columns.append(pa.nulls(1, kind))
            reasons[number] = described(error)
    return pa.concat_arrays(columns), pa.array(reasons, type=pa.string())


def described(error: Exception) -> str:
    """The error on one line; its type if it has no message."""
    return " ".join(str(error).split()) or type(error).__name__
