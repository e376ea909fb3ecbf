"""Generates the encoder of one message in one version: straight-line source, compiled once.

The generated function is `encode(m, o) -> buffers`. It appends to the bytearray `o` until it reaches records.
Records become separate buffers without a copy, and a new bytearray starts after them. The returned list is
meant for `writelines`.
"""

import struct
from collections.abc import Callable
from typing import Any

from millpond.protocol import primitives
from millpond.protocol.function_source import FunctionSource, format_of, is_fixed, runs
from millpond.protocol.primitives import UUID_BYTES
from millpond.protocol.schema import FieldSpec, Fixed, Sized, Struct, fields_in


def write_encoder(cls: type[Struct], version: int, flexible: bool) -> Callable[..., Any]:
    return _Encoder(cls, version, flexible).function


class _Encoder:
    def __init__(self, cls: type[Struct], version: int, flexible: bool) -> None:
        self.version, self.flexible = version, flexible
        self.source = FunctionSource(f"{cls.__name__} v{version} encoder", "def encode(m, o):")
        self.source.emit("parts = []")
        self.struct(cls, "m")
        self.source.emit("if o: parts.append(o)", "return parts")
        self.function = self.source.function(
            uvarint=primitives.uvarint,
            uuid_bytes=primitives.uuid_bytes,
            text_bytes=primitives.text_bytes,
            pack_array=struct.pack,
        )

    def struct(self, cls: type[Struct], value: str) -> None:
        specs = fields_in(cls, self.version)
        for run in runs([spec for spec in specs if spec.tag is None]):
            if is_fixed(run[0]):
                self.fixed(run, [f"{value}.{spec.name}" for spec in run])
            else:
                self.value(run[0], f"{value}.{run[0].name}")
        if self.flexible:
            tagged = [spec for spec in specs if spec.tag is not None]
            self.tags(sorted(tagged, key=lambda spec: spec.tag or 0), value)

    def fixed(self, run: list[FieldSpec], values: list[str]) -> None:
        pack = self.source.bind("pack", struct.Struct(format_of(run)).pack)
        arguments = [_checked(spec, value) for spec, value in zip(run, values, strict=True)]
        self.source.emit(f"o += {pack}({', '.join(arguments)})")

    def value(self, spec: FieldSpec, value: str) -> None:
        """Write a field, or null if the field is nullable and has no value."""
        if not spec.nullable:
            self.present(spec, value)
            return
        with self.source.block(f"if {value} is None:"):
            self.source.emit(f"o += {self.null(spec)!r}")
        with self.source.block("else:"):
            if isinstance(spec.kind, type) and not spec.array:
                self.source.emit("o.append(1)")
            self.present(spec, value)

    def null(self, spec: FieldSpec) -> bytes:
        if isinstance(spec.kind, type) and not spec.array:
            return b"\xff"
        if self.flexible:
            return b"\0"
        return b"\xff" * (2 if spec.kind is Sized.TEXT and not spec.array else 4)

    def present(self, spec: FieldSpec, value: str) -> None:
        if spec.array:
            self.array(spec, value)
        elif isinstance(spec.kind, Sized):
            self.sized(spec.kind, value)
        elif isinstance(spec.kind, Fixed):
            self.fixed([spec], [value])
        else:
            item = self.source.fresh("item")
            self.source.emit(f"{item} = {value}")
            self.struct(spec.kind, item)

    def sized(self, kind: Sized, value: str) -> None:
        if kind is Sized.TEXT:
            self.source.emit(f"v = text_bytes({value})")
            self.length("h", "len(v)")
            self.source.emit("o += v")
        elif kind is Sized.BYTES:
            self.length("i", f"len({value})")
            self.source.emit(f"o += {value}")
        elif kind is Sized.RECORDS:
            self.length("i", f"len({value})")
            self.apart(f"parts.append({value})")
        else:
            self.length("i", f"sum(map(len, {value}))")
            self.apart(f"parts.extend({value})")

    def apart(self, adding: str) -> None:
        """End the current bytearray, append the caller's record buffers and start the next bytearray."""
        self.source.emit("parts.append(o)", adding, "o = bytearray()")

    def length(self, legacy: str, length: str) -> None:
        if self.flexible:
            self.source.emit(f"n = {length} + 1", "if n < 128: o.append(n)", "else: o += uvarint(n)")
        else:
            pack = self.source.bind("pack", struct.Struct(">" + legacy).pack)
            self.source.emit(f"o += {pack}({length})")

    def array(self, spec: FieldSpec, value: str) -> None:
        element = spec.element()
        values = self.source.fresh("values")
        self.source.emit(f"{values} = {value}")
        self.length("i", f"len({values})")
        if isinstance(element.kind, Fixed) and element.kind.size != UUID_BYTES:
            self.source.emit(f"o += pack_array(f'>{{len({values})}}{element.kind.format}', *{values})")
            return
        item = self.source.fresh("item")
        with self.source.block(f"for {item} in {values}:"):
            if isinstance(element.kind, type):
                self.struct(element.kind, item)
            else:
                self.present(element, item)

    def tags(self, tagged: list[FieldSpec], value: str) -> None:
        """The tag count comes first and each tag is preceded by its size, so each tag is encoded separately
        and then copied."""
        if not tagged:
            self.source.emit("o.append(0)")
            return
        conditions = [self.differs(spec, f"{value}.{spec.name}") for spec in tagged]
        with self.source.block(f"if {' or '.join(conditions)}:"):
            self.some_tags(tagged, conditions, value)
        self.source.emit("else:", "    o.append(0)")

    def some_tags(self, tagged: list[FieldSpec], conditions: list[str], value: str) -> None:
        outer, count, tags = (self.source.fresh(stem) for stem in ("outer", "count", "tags"))
        self.source.emit(f"{outer} = o", f"{count} = 0", f"{tags} = b''")
        for spec, condition in zip(tagged, conditions, strict=True):
            with self.source.block(f"if {condition}:"):
                self.source.emit("o = bytearray()")
                self.value(spec, f"{value}.{spec.name}")
                self.source.emit(f"{count} += 1")
                self.source.emit(f"{tags} += uvarint({spec.tag}) + uvarint(len(o)) + o")
        self.source.emit(f"o = {outer}", f"o += uvarint({count})", f"o += {tags}")

    def differs(self, spec: FieldSpec, value: str) -> str:
        if spec.default is None:
            return f"{value} is not None"
        if spec.default == []:
            return value
        return f"{value} != {self.source.bind('default', spec.default)}"


def _checked(spec: FieldSpec, value: str) -> str:
    is_uuid = isinstance(spec.kind, Fixed) and spec.kind.size == UUID_BYTES
    return f"uuid_bytes({value})" if is_uuid else value
