"""Removes the check of each right in turn, and runs the tests that must notice it.

    python -m tests.unit.security.mutants             # all of them; prints the count
    python -m tests.unit.security.mutants kafka       # only those whose name contains this

Kafka: each call of `require` and its kin in a handler. HTTP and gRPC: each right that an operation declares. Both are
removed in the running process. The rest are checks that all interfaces share, and secrets that a line of the log would
show; these are changed in a copy of the package.
"""

import ast
import contextlib
import importlib
import inspect
import io
import os
import pkgutil
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.unit.frontends.kafka.authorization_cases import CASES
from tests.unit.frontends.rpc.wire import METHODS

from millpond.frontends import rpc
from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.rpc.guarding import _RULE
from millpond.frontends.web import handlers  # noqa: F401  # handlers register themselves
from millpond.frontends.web.operations import OPERATIONS
from millpond.security.requirements import AUTHENTICATED, Rule, Shows
from millpond.service.security_administration import SecurityAdministration

ROOT = Path(__file__).parents[3]
HANDLERS = ROOT / "src/millpond/frontends/kafka/handlers"
KAFKA_TESTS = (
    "tests/unit/frontends/kafka/test_authorization.py",
    "tests/unit/frontends/kafka/test_authorization_details.py",
    "tests/unit/frontends/kafka/test_foreign_names.py",
)
WEB_TESTS = ("tests/unit/frontends/web/test_rights.py",)
RPC_TESTS = ("tests/unit/frontends/rpc/test_rights.py",)
NEEDED = "test_each_right_is_needed_and_together_they_are_enough"
QUESTIONS = ("require", "require_topic", "allows", "allows_somewhere")
SECONDS_MAX = 900
WORKERS = 2


# -- in the running process -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class CallSite:
    """One call of `require` and its kin in a handler, which then asks for nothing."""

    module: str
    line: int
    shown: str

    @property
    def name(self) -> str:
        return f"kafka {self.module}:{self.line}: {self.shown}"

    def is_found(self) -> bool:
        with pytest.MonkeyPatch.context() as patch:
            for each in QUESTIONS:
                patch.setattr(KafkaCall, each, self._unless_here(getattr(KafkaCall, each), each))
            return fails(self._first()) or fails(KAFKA_TESTS)

    def _unless_here(self, original: Callable[..., object], question: str) -> Callable[..., object]:
        file = str(HANDLERS / f"{self.module}.py")

        def asked(call: KafkaCall, *arguments: object, **named: object) -> object:
            frame = sys._getframe(1)
            if frame.f_lineno == self.line and frame.f_code.co_filename == file:
                return True if question.startswith("allows") else None
            return original(call, *arguments, **named)

        return asked

    def _first(self) -> tuple[str, ...]:
        """The cases of the APIs that the module serves."""
        text = (HANDLERS / f"{self.module}.py").read_text().replace("\n    ", "")
        names = [each.name for each in CASES if f"({each.request.__name__}," in text]
        return tuple(f"{KAFKA_TESTS[0]}::test_each_of_the_rights_is_needed[{name}]" for name in names)


def call_sites() -> Iterator[CallSite]:
    for path in sorted(HANDLERS.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in QUESTIONS
                and getattr(node.func.value, "id", "") == "call"
            ):
                yield CallSite(path.stem, node.lineno, ast.unparse(node))


def without(rule: Rule, number: int) -> Rule:
    """The rule without one of its rights. Without the last one, every client may call the operation."""
    rest = tuple(each for place, each in enumerate(rule.requirements) if place != number)
    return replace(rule, requirements=rest) if rest else AUTHENTICATED


def removable(rule: Rule) -> Iterator[int]:
    """What is only shown is no right; the handler selects it."""
    for number, each in enumerate(rule.requirements):
        if not isinstance(each, Shows):
            yield number


@dataclass(frozen=True)
class WebRight:
    operation: str
    number: int

    @property
    def name(self) -> str:
        return f"http {self.operation}: {self._found().rule.requirements[self.number]}"

    def _found(self):
        return next(each for each in OPERATIONS if each.name == self.operation)

    def is_found(self) -> bool:
        operation = self._found()
        rule = operation.rule
        object.__setattr__(operation, "rule", without(rule, self.number))
        try:
            return fails((f"{WEB_TESTS[0]}::{NEEDED}[{self.operation}]",)) or fails(WEB_TESTS)
        finally:
            object.__setattr__(operation, "rule", rule)


@dataclass(frozen=True)
class RpcRight:
    service: str
    method: str
    number: int

    @property
    def name(self) -> str:
        return f"grpc {self.service}.{self.method}: {getattr(self._found(), _RULE).requirements[self.number]}"

    def _found(self):
        module, _, name = self.service.rpartition(".")
        return getattr(getattr(importlib.import_module(module), name), self.method)

    def is_found(self) -> bool:
        method = self._found()
        rule = getattr(method, _RULE)
        setattr(method, _RULE, without(rule, self.number))
        short = "".join(part.title() for part in self.method.split("_"))
        first = tuple(f"{RPC_TESTS[0]}::{NEEDED}[{each}]" for each in METHODS if each.endswith(f".{short}"))
        try:
            return fails(first) or fails(RPC_TESTS)
        finally:
            setattr(method, _RULE, rule)


def rpc_rights() -> Iterator[RpcRight]:
    for found in pkgutil.iter_modules(rpc.__path__):
        module = importlib.import_module(f"{rpc.__name__}.{found.name}")
        for service in vars(module).values():
            if not inspect.isclass(service) or service.__module__ != module.__name__:
                continue
            for name, method in vars(service).items():
                rule = getattr(method, _RULE, None)
                if rule is not None:
                    full = f"{module.__name__}.{service.__name__}"
                    yield from (RpcRight(full, name, number) for number in removable(rule))


def fails(tests: tuple[str, ...]) -> bool:
    """Whether the tests fail in this process."""
    if not tests:
        return False
    with contextlib.redirect_stdout(io.StringIO()) as printed, pytest.MonkeyPatch.context() as patch:
        # It checks again what an interface has checked, which would hide that the interface does not.
        patch.setattr(SecurityAdministration, "_check", lambda *_: None)
        code = pytest.main(["-q", "-x", "--assert=plain", "-p", "no:cacheprovider", *tests])
    assert code in (0, 1), printed.getvalue()
    return code == 1


# -- in a copy ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SourceChange:
    name: str
    path: str
    code: str
    instead: str
    tests: tuple[str, ...]

    def is_found(self) -> bool:
        with tempfile.TemporaryDirectory(prefix="millpond-mutant-") as name:
            copy = Path(name)
            shutil.copytree(ROOT / "src", copy / "src")
            path = copy / self.path
            text = path.read_text()
            assert text.count(self.code) == 1, (self.name, text.count(self.code))
            path.write_text(text.replace(self.code, self.instead))
            done = subprocess.run(
                [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *self.tests],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(copy / "src")},
                capture_output=True,
                text=True,
                timeout=SECONDS_MAX,
                check=False,
            )
        assert done.returncode in (0, 1), done.stdout + done.stderr
        return done.returncode == 1


SECRETS = "tests/hostile/security/test_secrets.py"


def in_source() -> Iterator[SourceChange]:
    security = "src/millpond/security"
    yield SourceChange(
        "shared: every right is there",
        f"{security}/access.py",
        "        if not self.allows(operation, resource, name):",
        "        if False:",
        RPC_TESTS,
    )
    yield SourceChange(
        "shared: a credential that has ended is valid",
        f"{security}/access.py",
        "        if not self._source.is_valid(self.identity):",
        "        if False:",
        ("tests/unit/security/test_view.py", "tests/unit/frontends/kafka/test_sasl.py"),
    )
    yield SourceChange(
        "shared: requests before the login are read",
        "src/millpond/frontends/kafka/authentication.py",
        "        if not self.is_authenticated:\n            raise NotAuthenticated\n",
        "",
        ("tests/unit/frontends/kafka/test_sasl.py",),
    )
    yield SourceChange(
        "shared: requests between the steps of a login are read",
        "src/millpond/frontends/kafka/authentication.py",
        "        if self._exchange is not None:\n            self._audit_failure()",
        "        if False:\n            self._audit_failure()",
        ("tests/unit/frontends/kafka/test_sasl.py",),
    )
    yield SourceChange(
        "shared: requests before the login count for quotas",
        "src/millpond/frontends/kafka/connection.py",
        "        if slot.use is None or not self._authentication.is_authenticated:",
        "        if slot.use is None:",
        ("tests/unit/frontends/kafka/test_throttling.py",),
    )
    yield SourceChange(
        "shared: an address may fill the queue of password checks",
        f"{security}/plain.py",
        "self._waiting[network] >= WAITING_PER_ADDRESS_MAX or ",
        "",
        ("tests/unit/security/test_plain.py",),
    )
    yield SourceChange(
        "shared: new client ids end the delays of others",
        f"{security}/quotas.py",
        " if not each.is_full(now_ms)}",
        " if False}",
        ("tests/unit/security/test_quotas.py",),
    )
    yield SourceChange(
        "shared: a quota of topics silences the audit topic",
        "src/millpond/parts.py",
        ", exempt=_written_by_brokers(settings)",
        "",
        ("tests/unit/service/test_audit_topic.py",),
    )
    yield SourceChange(
        "secret: a password is logged",
        f"{security}/plain.py",
        "        mark = self._mark(user, password)\n",
        "        mark = self._mark(user, password)\n        __import__('logging').warning(password)\n",
        (SECRETS,),
    )
    yield SourceChange(
        "secret: a token is in the error",
        f"{security}/tokens.py",
        '    return f"{text[: len(PREFIX) + _ID_CHARS]}…" if text.startswith(PREFIX) else text',
        "    return text",
        (SECRETS,),
    )
    yield SourceChange(
        "secret: a refused JWT is logged",
        f"{security}/jwt.py",
        '    logger.debug("token refused", extra={"reason": reason})',
        '    import inspect\n    logger.debug("token refused", extra={"x": str(inspect.stack()[1].frame.f_locals)})',
        (SECRETS,),
    )
    yield SourceChange(
        "secret: settings show the password of the catalog",
        "src/millpond/cli/settings.py",
        "    shown = _without_secrets(load_settings(data_dir, config, assignments).shown())",
        "    shown = load_settings(data_dir, config, assignments).shown()",
        (SECRETS,),
    )
    yield SourceChange(
        "secret: the audit log has the name that a client gave",
        f"{security}/audit.py",
        '                "authentication failed", extra={"interface": interface, "client": client, "method": method}',
        '                "authentication failed",'
        ' extra={"x": str([each.frame.f_locals for each in __import__("inspect").stack()[1:4]])}',
        (SECRETS,),
    )


def mutants() -> list[CallSite | WebRight | RpcRight | SourceChange]:
    return [
        *call_sites(),
        *(WebRight(each.name, number) for each in OPERATIONS for number in removable(each.rule)),
        *rpc_rights(),
        *in_source(),
    ]


def is_found(number: int) -> bool:
    return mutants()[number].is_found()


def main(chosen: str = "") -> int:
    wanted = {number: each.name for number, each in enumerate(mutants()) if chosen in each.name}
    survivors = 0
    with ProcessPoolExecutor(WORKERS) as pool:
        for name, found in zip(wanted.values(), pool.map(is_found, wanted), strict=True):
            survivors += not found
            print(f"{'found' if found else 'NOT FOUND':10} {name}", flush=True)
    print(f"{len(wanted) - survivors} of {len(wanted)} mutants found", flush=True)
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
