"""Removes the check of each right in turn, and runs the tests that must notice it.

    python -m tests.unit.security.mutants             # all of them, in copies of the package; prints the count
    python -m tests.unit.security.mutants kafka       # only those whose name contains this

Kafka: each call of `require` and its kin in a handler. HTTP and gRPC: each right that an operation declares. The rest
are checks that all interfaces share, and secrets that a line of the log would show.
"""

import ast
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.unit.frontends.kafka.authorization_cases import CASES
from tests.unit.frontends.rpc.wire import METHODS

ROOT = Path(__file__).parents[3]
HANDLERS = "src/millpond/frontends/kafka/handlers"
KAFKA_TESTS = (
    "tests/unit/frontends/kafka/test_authorization.py",
    "tests/unit/frontends/kafka/test_authorization_details.py",
    "tests/unit/frontends/kafka/test_foreign_names.py",
)
WEB_TESTS = ("tests/unit/frontends/web/test_rights.py",)
RPC_TESTS = ("tests/unit/frontends/rpc/test_rights.py",)
SECONDS_MAX = 900
WORKERS = 2


@dataclass(frozen=True)
class Change:
    """Replaces the text between two places of a file."""

    name: str
    path: str
    start: int
    end: int
    instead: str
    tests: tuple[str, ...]
    first: tuple[str, ...] = ()
    """The tests that probably notice it; the others run only if they do not."""

    def apply(self, root: Path) -> None:
        path = root / self.path
        data = path.read_bytes()
        path.write_bytes(data[: self.start] + self.instead.encode() + data[self.end :])


def span(text: str, node: ast.AST) -> tuple[int, int]:
    """Where a node begins and ends, in bytes."""
    lines = [0]
    for line in text.encode().splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    return (
        lines[node.lineno - 1] + node.col_offset,
        lines[node.end_lineno - 1] + node.end_col_offset,
    )


def calls(tree: ast.AST, names: set[str]) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            function = node.func
            named = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            if named in names:
                yield node


def in_kafka_handlers() -> Iterator[Change]:
    for path in sorted((ROOT / HANDLERS).glob("*.py")):
        text = path.read_text()
        for call in calls(ast.parse(text), {"require", "require_topic", "allows", "allows_somewhere"}):
            if not isinstance(call.func, ast.Attribute) or getattr(call.func.value, "id", "") != "call":
                continue
            instead = "True" if call.func.attr.startswith("allows") else "None"
            name = f"kafka {path.stem}:{call.lineno}: {ast.unparse(call)}"
            place = span(text, call)
            yield Change(
                name, f"{HANDLERS}/{path.name}", *place, instead, KAFKA_TESTS, cases_of(path.stem, text)
            )


def cases_of(module: str, text: str) -> tuple[str, ...]:
    """The cases of the APIs that a handler's module serves."""
    test = "tests/unit/frontends/kafka/test_authorization.py::test_each_of_the_rights_is_needed"
    named = [each.name for each in CASES if f"({each.request.__name__}," in text.replace("\n    ", "")]
    return tuple(f"{test}[{name}]" for name in named)


def in_declarations(folder: str, tests: tuple[str, ...], label: str) -> Iterator[Change]:
    """Each right in `needs(...)` and `@guarded(...)`. What is only shown is no right; the handler selects it."""
    for path in sorted((ROOT / folder).rglob("*.py")):
        text = path.read_text()
        tree = ast.parse(text)
        for call in calls(tree, {"needs", "guarded"}):
            for argument in call.args:
                shown = ast.unparse(argument)
                if shown.startswith(("Shows(", "AUTHENTICATED", "PUBLIC", "*")):
                    continue
                place = span(text, call)
                first = tuple(
                    f"{tests[0]}::test_each_right_is_needed_and_together_they_are_enough[{name}]"
                    for name in operations_with(tree, call, label, text)
                )
                name = f"{label} {path.stem}:{call.lineno}: {shown}"
                instead = without(call, argument)
                yield Change(name, str(path.relative_to(ROOT)), *place, instead, tests, first)


def without(call: ast.Call, argument: ast.expr) -> str:
    """The declaration without one of its rights. Without the last one, every client may call the operation."""
    rest = [ast.unparse(each) for each in call.args if each is not argument]
    function = ast.unparse(call.func)
    if rest:
        keywords = [f"{each.arg}={ast.unparse(each.value)}" for each in call.keywords]
        return f"{function}({', '.join([*rest, *keywords])})"
    everyone = "__import__('millpond.security.requirements', fromlist=['x']).AUTHENTICATED"
    return everyone if function == "needs" else f"{function}({everyone})"


def operations_with(tree: ast.AST, call: ast.Call, label: str, text: str) -> Iterator[str]:
    """The names of the operations that have this declaration, as the tables of the tests name them."""
    for service in ast.walk(tree):
        if not isinstance(service, ast.ClassDef | ast.Module):
            continue
        for method in service.body:
            if not isinstance(method, ast.AsyncFunctionDef | ast.FunctionDef):
                continue
            if any(call in list(ast.walk(each)) for each in method.decorator_list):
                if label == "http":
                    yield method.name
                else:
                    short = "".join(part.title() for part in method.name.split("_"))
                    yield from (each for each in METHODS if each.endswith(f".{short}"))


def replaced(name: str, path: str, code: str, instead: str, *tests: str) -> Change:
    data = (ROOT / path).read_text()
    assert data.count(code) == 1, (name, data.count(code))
    start = len(data[: data.index(code)].encode())
    return Change(name, path, start, start + len(code.encode()), instead, tests)


SECRETS = "tests/hostile/security/test_secrets.py"


def shared() -> Iterator[Change]:
    security = "src/millpond/security"
    yield replaced(
        "shared: every right is there",
        f"{security}/access.py",
        "        if not self.allows(operation, resource, name):",
        "        if False:",
        *RPC_TESTS,
    )
    yield replaced(
        "shared: a credential that has ended is valid",
        f"{security}/access.py",
        "        if not self._source.is_valid(self.identity):",
        "        if False:",
        "tests/unit/security/test_view.py",
        "tests/unit/frontends/kafka/test_sasl.py",
    )
    yield replaced(
        "shared: requests before the login are read",
        "src/millpond/frontends/kafka/authentication.py",
        "        if not self.is_authenticated or self._exchange is not None:",
        "        if False:",
        "tests/unit/frontends/kafka/test_sasl.py",
    )
    yield replaced(
        "secret: a password is logged",
        f"{security}/plain.py",
        "        mark = self._mark(user, password)\n",
        "        mark = self._mark(user, password)\n        __import__('logging').warning(password)\n",
        SECRETS,
    )
    yield replaced(
        "secret: a token is in the error",
        f"{security}/tokens.py",
        '    return f"{text[: len(PREFIX) + _ID_CHARS]}…" if text.startswith(PREFIX) else text',
        "    return text",
        SECRETS,
    )
    yield replaced(
        "secret: a refused JWT is logged",
        f"{security}/jwt.py",
        '    logger.debug("token refused", extra={"reason": reason})',
        '    import inspect\n    logger.debug("token refused", extra={"x": str(inspect.stack()[1].frame.f_locals)})',
        SECRETS,
    )
    yield replaced(
        "secret: settings show the password of the catalog",
        "src/millpond/cli/settings.py",
        "    shown = _without_secrets(load_settings(data_dir, config, assignments).shown())",
        "    shown = load_settings(data_dir, config, assignments).shown()",
        SECRETS,
    )
    yield replaced(
        "secret: the audit log has the name that a client gave",
        f"{security}/audit.py",
        '                "authentication failed", extra={"interface": interface, "client": client, "method": method}',
        '                "authentication failed", extra={"x": str(__import__("inspect").stack()[1].frame.f_locals)}',
        SECRETS,
    )


def mutants() -> list[Change]:
    return [
        *in_kafka_handlers(),
        *in_declarations("src/millpond/frontends/web/handlers", WEB_TESTS, "http"),
        *in_declarations("src/millpond/frontends/rpc", RPC_TESTS, "grpc"),
        *shared(),
    ]


def is_found(change: Change) -> bool:
    """Whether its tests fail with a copy of the package that has the change."""
    with tempfile.TemporaryDirectory(prefix="millpond-mutant-") as name:
        copy = Path(name)
        shutil.copytree(ROOT / "src", copy / "src")
        change.apply(copy)
        return any(fails(tests, copy) for tests in (change.first, change.tests) if tests)


def fails(tests: tuple[str, ...], copy: Path) -> bool:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(copy / "src")},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.returncode == 1


def main(chosen: str = "") -> int:
    wanted = [each for each in mutants() if chosen in each.name]
    survivors = 0
    with ThreadPoolExecutor(WORKERS) as pool:
        for change, found in zip(wanted, pool.map(is_found, wanted), strict=True):
            survivors += not found
            print(f"{'found' if found else 'NOT FOUND':10} {change.name}", flush=True)
    print(f"{len(wanted) - survivors} of {len(wanted)} mutants found", flush=True)
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
