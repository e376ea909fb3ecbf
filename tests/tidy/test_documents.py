"""The documents: generated pages are up to date, links lead somewhere, and nothing names the machine it was made on."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from millpond import settings
from millpond.model.configs import DEFINITIONS

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs/reference"
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


def load_generator():
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs/generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATOR = load_generator()


def files():
    """What belongs to the project: what git knows, or would take."""
    done = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip("this is not a git checkout")
    return [path for name in done.stdout.splitlines() if (path := ROOT / name).is_file()]


def documents():
    return [path for path in files() if path.suffix == ".md"]


@pytest.mark.parametrize("name", GENERATOR.pages())
def test_a_generated_page_is_what_the_generator_prints(name):
    assert (REFERENCE / name).read_text() == GENERATOR.pages()[name], "run `python docs/generate.py`"


def test_every_setting_is_described():
    page = (REFERENCE / "settings.md").read_text()
    for name in settings.names():
        assert f"| `{name}` | `MILLPOND_{name.upper()}` |" in page
        assert settings.meaning_of(name).endswith(".")


def test_every_error_is_described():
    page = (REFERENCE / "errors.md").read_text()
    for kind in GENERATOR.error_classes():
        assert f"| `{kind.__name__}` |" in page


def test_every_metric_is_described_and_named_for_the_product():
    page = (REFERENCE / "metrics.md").read_text()
    for metric in GENERATOR.metrics():
        assert f"| `{metric._name}` |" in page
        assert metric._name.startswith("millpond_")
        assert metric._documentation.endswith(".")


def test_every_kafka_request_is_described_with_its_key_and_versions():
    page = (REFERENCE / "kafka.md").read_text()
    for key, handler in GENERATOR.HANDLERS.items():
        name = GENERATOR.name_of(handler)
        says = sys.modules[handler.begin.__module__].__doc__
        assert says.startswith(f"{name} ({key}), v{GENERATOR.span(handler.request.versions)}: ")
        assert f"| {key} | `{name}` |" in page


def test_every_topic_config_is_described():
    page = (REFERENCE / "kafka.md").read_text()
    for name, definition in DEFINITIONS.items():
        assert f"| `{name}` | {definition.effect} |" in page
        assert definition.meaning.endswith(".")


def test_every_relative_link_leads_somewhere():
    broken = []
    for document in documents():
        for target in LINK.findall(document.read_text()):
            if target.startswith(("http://", "https://", "mailto:", "#")):
                continue
            if not (document.parent / target.partition("#")[0]).exists():
                broken.append(f"{document.relative_to(ROOT)}: {target}")
    assert broken == []


def test_every_file_that_the_documents_name_is_there():
    """`src/…`, `docs/…` and `tests/…` in backquotes are paths of this repository."""
    named = re.compile(r"`((?:src|docs|tests|benchmarks)/[\w./-]+)`")
    gone = [
        f"{document.relative_to(ROOT)}: {name}"
        for document in documents()
        for name in named.findall(document.read_text())
        if not (ROOT / name.rstrip("/")).exists()
    ]
    assert gone == []


def test_every_decision_has_a_number_of_its_own_and_says_it():
    pages = sorted((ROOT / "docs/decisions").glob("*.md"))
    numbers = [page.name.partition("-")[0] for page in pages]
    assert pages
    assert len(set(numbers)) == len(numbers)
    for number, page in zip(numbers, pages, strict=True):
        assert re.fullmatch(r"\d{4}", number), page.name
        assert page.read_text().startswith(f"# {int(number)}. "), page.name


MACHINE = re.compile(
    "|".join(
        (
            r"/(?:home|root|Users|work|workspace)/\w+",  # somebody's directories
            r"\bfile:///(?:home|root|work)\b",
            r"(?<![\w.])(?:10|192\.168|172\.(?:1[6-9]|2\d|3[01]))(?:\.\d{1,3}){2,3}(?![\w.])",  # private hosts
        )
    )
)
REGISTRY = re.compile(
    r"(?:--(?:extra-)?index-url|--find-links|--trusted-host|index-url\s*=)"
    r"|https?://[^\s\"')]*(?:pypi|artifactory|nexus|/simple\b|registry|mirror)[^\s\"')]*",
    re.IGNORECASE,
)
SAYS_SO = {"tests/tidy/test_documents.py"}


def lines():
    for path in files():
        name = str(path.relative_to(ROOT))
        if name in SAYS_SO:
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            yield f"{name}:{number}", line


def test_no_file_names_a_place_on_somebodys_machine():
    assert [f"{place}: {line.strip()}" for place, line in lines() if MACHINE.search(line)] == []


def test_no_file_names_a_package_registry():
    found = [f"{place}: {line.strip()}" for place, line in lines() if REGISTRY.search(line)]
    assert [each for each in found if "--no-emit-index-url" not in each] == []


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt"])
def test_pins_are_names_and_versions_and_nothing_else(name):
    for line in (ROOT / name).read_text().splitlines():
        assert re.fullmatch(r"[a-z0-9][a-z0-9._-]*==[\w.]+", line), line


def test_every_dependency_is_pinned():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned = {line.partition("==")[0] for line in (ROOT / "requirements.txt").read_text().splitlines()}
    wanted = {re.split(r"[<>=\[ ]", each)[0] for each in project["dependencies"]}
    assert wanted <= pinned
