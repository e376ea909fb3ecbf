"""Builds the source of a function and compiles it, as `dataclasses` does.

Both code generators use this module: indented lines, names bound to objects, and runs of fixed-width fields
that share one `struct` call. The source contains only declarations from this package, never bytes from clients.
"""

import linecache
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from millpond.protocol.schema import FieldSpec, Fixed


class FunctionSource:
    def __init__(self, title: str, signature: str) -> None:
        self.title = title
        self._lines = [signature]
        self._names: dict[str, Any] = {}
        self._depth = 1
        self._count = 0

    def emit(self, *lines: str) -> None:
        self._lines.extend("    " * self._depth + line for line in lines)

    @contextmanager
    def block(self, opening: str) -> Iterator[None]:
        self.emit(opening)
        self._depth += 1
        yield
        self._depth -= 1

    def fresh(self, stem: str) -> str:
        """Returns a name that is unique in this function."""
        self._count += 1
        return f"{stem}_{self._count}"

    def bind(self, stem: str, value: Any) -> str:
        """Returns a fresh name bound to `value`."""
        name = self.fresh(stem)
        self._names[name] = value
        return name

    def function(self, **names: Any) -> Callable[..., Any]:
        """Compile the function. It can access `names` and all bound values."""
        text = "\n".join(self._lines) + "\n"
        filename = f"<millpond {self.title}>"
        scope = {**names, **self._names}
        exec(compile(text, filename, "exec"), scope)  # noqa: S102  # built only from declarations
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        made: Callable[..., Any] = scope[text.partition("(")[0].removeprefix("def ")]
        return made


def is_fixed(spec: FieldSpec) -> bool:
    return isinstance(spec.kind, Fixed) and not spec.array


def runs(specs: list[FieldSpec]) -> Iterator[list[FieldSpec]]:
    """Groups adjacent fixed-width fields; every other field is a group of one."""
    run: list[FieldSpec] = []
    for spec in specs:
        if is_fixed(spec):
            run.append(spec)
            continue
        if run:
            yield run
        run = []
        yield [spec]
    if run:
        yield run


def format_of(run: list[FieldSpec]) -> str:
    return ">" + "".join(spec.kind.format for spec in run if isinstance(spec.kind, Fixed))
