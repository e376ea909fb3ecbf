"""Generates the decoder of one message in one version: straight-line source, compiled once.

The generated function is `decode(b, i, end, view) -> (message, i)`. `struct` and indexing bound the
fixed-width reads: they raise when the data ends. Every length and count is compared with the remaining bytes
before anything is allocated for it. The caller turns those exceptions into MalformedMessage. Structs nest
only as deep as they are declared, whatever the input.
"""

import dataclasses
import struct
from collections.abc import Callable
from typing import Any

from millpond.protocol import primitives
from millpond.protocol.function_source import FunctionSource, format_of, is_fixed, runs
from millpond.protocol.schema import FieldSpec, Fixed, Sized, Struct, default_of, fields_in

_READ = {
    Sized.TEXT: "str(b[i:j], 'utf-8')",
    Sized.BYTES: "bytes(b[i:j])",
    Sized.RECORDS: "view[i:j]",
    Sized.RECORD_PARTS: "[view[i:j]]",
}


def write_decoder(cls: type[Struct], version: int, flexible: bool) -> Callable[..., Any]:
    return _Decoder(cls, version, flexible).function


class _Decoder:
    def __init__(self, cls: type[Struct], version: int, flexible: bool) -> None:
        self.version, self.flexible = version, flexible
        self.source = FunctionSource(f"{cls.__name__} v{version} decoder", "def decode(b, i, end, view):")
        self.source.emit("left = ELEMENTS_MAX")
        message = self.struct(cls)
        self.source.emit(f"return {message}, i")
        self.function = self.source.function(
            ELEMENTS_MAX=primitives.ELEMENTS_MAX,
            read_uvarint=primitives.read_uvarint,
            skip_tags=primitives.skip_tags,
            refuse_length=primitives.refuse_length,
            refuse_count=primitives.refuse_count,
            refuse_tag=primitives.refuse_tag,
            unpack_array=struct.unpack_from,
        )

    def struct(self, cls: type[Struct]) -> str:
        """Read every field into a local variable. Returns the expression that constructs the struct from them."""
        specs = fields_in(cls, self.version)
        values = {spec.name: self.source.fresh(spec.name) for spec in specs}
        for run in runs([spec for spec in specs if spec.tag is None]):
            if is_fixed(run[0]):
                self.fixed(run, [values[spec.name] for spec in run])
            else:
                self.value(run[0], values[run[0].name])
        if self.flexible:
            self.tags([spec for spec in specs if spec.tag is not None], values)
        for declared in dataclasses.fields(cls):  # type: ignore[arg-type]  # every Struct is a dataclass
            if declared.name not in values:
                values[declared.name] = self.default(declared)
        arguments = ", ".join(f"{name}={value}" for name, value in values.items())
        return f"{self.source.bind(cls.__name__, cls)}({arguments})"

    def default(self, declared: "dataclasses.Field[Any]") -> str:
        if declared.default_factory is not dataclasses.MISSING:
            return f"{self.source.bind('make', declared.default_factory)}()"
        return self.source.bind("default", default_of(declared))

    def fixed(self, run: list[FieldSpec], targets: list[str]) -> None:
        packer = struct.Struct(format_of(run))
        unpack = self.source.bind("unpack", packer.unpack_from)
        self.source.emit(f"{', '.join(targets)}, = {unpack}(b, i)", f"i += {packer.size}")

    def value(self, spec: FieldSpec, target: str) -> None:
        if spec.array:
            self.array(spec, target)
        elif isinstance(spec.kind, Sized):
            self.sized(spec, spec.kind, target)
        elif isinstance(spec.kind, Fixed):
            self.fixed([spec], [target])
        elif spec.nullable:
            self.nullable_struct(spec.kind, target)
        else:
            self.source.emit(f"{target} = {self.struct(spec.kind)}")

    def nullable_struct(self, cls: type[Struct], target: str) -> None:
        """One byte precedes the struct; a negative value means null (KIP-893)."""
        self.source.emit("n = b[i]", "i += 1")
        with self.source.block("if n > 127:"):
            self.source.emit(f"{target} = None")
        with self.source.block("else:"):
            self.source.emit(f"{target} = {self.struct(cls)}")

    def sized(self, spec: FieldSpec, kind: Sized, target: str) -> None:
        self.length("h" if kind is Sized.TEXT else "i")
        if spec.nullable:
            self.source.emit("if n == -1:", f"    {target} = None")
            with self.source.block("else:"):
                self.contents(spec.name, kind, target)
        else:
            self.contents(spec.name, kind, target)

    def contents(self, name: str, kind: Sized, target: str) -> None:
        most = f"0 <= n <= {primitives.TEXT_BYTES_MAX}" if kind is Sized.TEXT else "0 <= n"
        self.source.emit("j = i + n")
        self.source.emit(f"if j > end or not {most}: refuse_length({name!r}, n, end - i)")
        self.source.emit(f"{target} = {_READ[kind]}", "i = j")

    def length(self, legacy: str) -> None:
        """Emit code that reads a length into `n`; -1 means null."""
        if self.flexible:
            self.uvarint("n")
            self.source.emit("n -= 1")
        else:
            packer = struct.Struct(">" + legacy)
            unpack = self.source.bind("unpack", packer.unpack_from)
            self.source.emit(f"n, = {unpack}(b, i)", f"i += {packer.size}")

    def uvarint(self, target: str) -> None:
        self.source.emit(f"{target} = b[i]", "i += 1")
        self.source.emit(f"if {target} > 127: {target}, i = read_uvarint(b, i - 1)")

    def array(self, spec: FieldSpec, target: str) -> None:
        self.length("i")
        if spec.nullable:
            self.source.emit("if n == -1:", f"    {target} = None")
            with self.source.block("else:"):
                self.elements(spec, target)
        else:
            self.elements(spec, target)

    def elements(self, spec: FieldSpec, target: str) -> None:
        element = spec.element()
        smallest = smallest_size(element, self.version, self.flexible)
        self.source.emit("left -= n")
        self.source.emit(
            f"if n < 0 or left < 0 or n * {smallest} > end - i: refuse_count({spec.name!r}, n, end - i)"
        )
        if isinstance(element.kind, Fixed):
            self.fixed_elements(element.kind, target)
            return
        self.source.emit(f"{target} = []")
        with self.source.block("for _ in range(n):"):
            if isinstance(element.kind, Sized):
                item = self.source.fresh("item")
                self.sized(element, element.kind, item)
            else:
                item = self.struct(element.kind)
            self.source.emit(f"{target}.append({item})")

    def fixed_elements(self, kind: Fixed, target: str) -> None:
        self.source.emit(f"j = i + n * {kind.size}")
        if kind.size == primitives.UUID_BYTES:
            self.source.emit(f"{target} = [bytes(b[k:k + {kind.size}]) for k in range(i, j, {kind.size})]")
        else:
            self.source.emit(f"{target} = list(unpack_array(f'>{{n}}{kind.format}', b, i))")
        self.source.emit("i = j")

    def tags(self, tagged: list[FieldSpec], values: dict[str, str]) -> None:
        """Read known tags into their locals and skip unknown ones, as KIP-482 requires. Most structs have no tags."""
        if not tagged:
            self.source.emit("n = b[i]", "i += 1")
            with self.source.block("if n:"):
                self.source.emit("i, n = skip_tags(b, i - 1)")
                self.tags_left()
            return
        for spec in tagged:
            empty = "[]" if isinstance(spec.default, list) else self.source.bind("default", spec.default)
            self.source.emit(f"{values[spec.name]} = {empty}")
        self.uvarint("n")
        with self.source.block("if n:"):
            self.source.emit("if n * 2 > end - i: refuse_count('tagged fields', n, end - i)")
            self.tags_left()
            with self.source.block("for _ in range(n):"):
                self.tag(tagged, values)

    def tags_left(self) -> None:
        """Skipping tags costs time, so they count towards the element limit."""
        self.source.emit("left -= n", "if left < 0: refuse_count('tagged fields', n, end - i)")

    def tag(self, tagged: list[FieldSpec], values: dict[str, str]) -> None:
        stop = self.source.fresh("stop")
        self.uvarint("tag")
        self.uvarint("n")
        self.source.emit("if n > end - i: refuse_length('a tagged field', n, end - i)", f"{stop} = i + n")
        for spec in tagged:
            with self.source.block(f"{'if' if spec is tagged[0] else 'elif'} tag == {spec.tag}:"):
                self.value(spec, values[spec.name])
                self.source.emit(f"if i != {stop}: refuse_tag({spec.name!r})")
        self.source.emit(f"i = {stop}")


def smallest_size(spec: FieldSpec, version: int, flexible: bool) -> int:
    """The minimum encoded size of a field in bytes; at least 1 for everything that can be an array element."""
    if spec.array or spec.kind in (Sized.BYTES, Sized.RECORDS, Sized.RECORD_PARTS):
        return 1 if flexible else 4
    if spec.kind is Sized.TEXT:
        return 1 if flexible else 2
    if isinstance(spec.kind, Fixed):
        return spec.kind.size
    assert isinstance(spec.kind, type)
    if spec.nullable:
        return 1
    inside = [field for field in fields_in(spec.kind, version) if field.tag is None]
    return int(flexible) + sum(smallest_size(field, version, flexible) for field in inside)
