"""The documents: generated pages are up to date, links lead somewhere, and nothing names the machine it was made on."""

import dataclasses
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.peers import acl_known
from tests.peers.times.known import KNOWN_DIFFERENCES

from millpond import settings
from millpond.model.configs import DEFINITIONS
from millpond.security.listener import HandshakeLimits

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


def test_the_generated_pages_are_what_the_generator_prints():
    for name, page in GENERATOR.pages().items():
        assert (REFERENCE / name).read_text() == page, "run `python docs/generate.py`"


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
        assert f"| `{metric.name}` |" in page
        assert metric.name.startswith("millpond_")
        assert metric.documentation.endswith(".")


def test_every_limit_of_security_is_listed():
    """A constant of `security/` whose name says that it is a limit, and every field of its limits."""
    listed = {limit.code for limits in GENERATOR.SECURITY_LIMITS.values() for limit in limits}
    source = ROOT / "src/millpond"
    paths = [*sorted((source / "security").glob("*.py")), source / "catalog/security.py"]
    pattern = re.compile(r"^([A-Z]\w*_M(?:AX|IN)): Final", re.MULTILINE)
    found = {
        f"{path.parent.name}.{path.stem}.{name}"
        for path in paths
        for name in pattern.findall(path.read_text())
    }
    fields = {
        f"security.listener.HandshakeLimits.{each.name}" for each in dataclasses.fields(HandshakeLimits)
    }
    assert found | fields <= listed
    assert len(found) > 20


def test_every_kafka_request_is_described_with_its_key_and_versions():
    page = (REFERENCE / "kafka.md").read_text()
    for key, handler in GENERATOR.HANDLERS.items():
        name = GENERATOR.name_of(handler)
        says = sys.modules[handler.begin.__module__].__doc__
        assert says.startswith(f"{name} ({key}), v{GENERATOR.span(handler.request.versions)}: ")
        served = GENERATOR.span(handler.request.versions)
        assert re.search(rf"^\| {key} \| `{name}` \| {served} [(|]", page, re.MULTILINE), name


def test_versions_that_are_advertised_and_refused_are_told_apart_from_those_served():
    assert "| 0 | `Produce` | 3-13 (advertised as 0-13) |" in (REFERENCE / "kafka.md").read_text()


def test_every_topic_config_is_described():
    page = (REFERENCE / "kafka.md").read_text()
    for name, definition in DEFINITIONS.items():
        assert f"| `{name}` | {definition.effect} |" in page
        assert definition.meaning.endswith(".")


def test_every_known_difference_of_timestamps_from_kafka_is_described():
    assert list(GENERATOR.TIMESTAMP_DIFFERENCES) == list(
        dict.fromkeys(each.reason for each in KNOWN_DIFFERENCES)
    )


def test_every_known_difference_of_acls_from_kafka_is_described():
    assert list(GENERATOR.ACL_DIFFERENCES) == acl_known.reasons()


def test_every_relative_link_leads_somewhere():
    broken = []
    for document in documents():
        for target in LINK.findall(document.read_text()):
            if target.startswith(("http://", "https://", "mailto:", "#")):
                continue
            if not (document.parent / target.partition("#")[0]).exists():
                broken.append(f"{document.relative_to(ROOT)}: {target}")
    assert broken == []


PACKAGE = ROOT / "src/millpond"
QUOTED = re.compile(r"`([\w./-]+)`")
SUFFIXES = (".py", ".md", ".toml", ".yaml", ".proto", ".json", ".txt")
MODULE = re.compile(r"`(millpond(?:\.\w+)+)`")


def folders_of(path):
    return {each.name for each in path.iterdir() if each.is_dir() and not each.name.startswith(".")}


def is_there(name, known):
    """Whether a name in backquotes that looks like a path is one. A file may be named by the end of its path, as
    `log/flusher.py` or `flusher.py`; a folder from the root of the repository or of the package. A name that looks
    like no path (`text/plain`, `max.message.bytes`) passes."""
    first, slash, _ = name.partition("/")
    if name.endswith(SUFFIXES) and not name.startswith("."):
        return any(f"/{path}".endswith(f"/{name}") for path in known)
    if not slash or first not in folders_of(ROOT) | folders_of(PACKAGE):
        return True
    return any((base / name).exists() for base in (ROOT, PACKAGE))


def missing_names(texts):
    known = [path.relative_to(ROOT) for path in files()]
    return [
        f"{path.relative_to(ROOT)}: {name}"
        for path, text in texts
        for name in QUOTED.findall(text)
        if not is_there(name, known)
    ]


def test_every_file_that_the_documents_name_is_there():
    """Paths of the repository (`docs/…`, `tests/…`) and of the package (`log/flusher.py`)."""
    read = [path for path in documents() if path.name != "CHANGELOG.md"]
    assert missing_names((path, path.read_text()) for path in read) == []


def sources():
    return [path for path in files() if path.suffix == ".py" and PACKAGE in path.parents]


def test_every_file_that_the_source_names_is_there():
    assert missing_names((path, path.read_text()) for path in sources() if path.parent.name != "stubs") == []


def is_module_or_name(dotted):
    """`millpond.log.flusher`, or a name in a module, as `millpond.log.flusher.Flusher`."""
    path = ROOT / "src" / dotted.replace(".", "/")
    if path.is_dir() or path.with_suffix(".py").is_file():
        return True
    above = path.parent / "__init__.py" if path.parent.is_dir() else path.parent.with_suffix(".py")
    return above.is_file() and re.search(rf"\b{path.name}\b", above.read_text()) is not None


def test_every_module_that_the_source_names_is_there():
    gone = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sources()
        for name in MODULE.findall(path.read_text())
        if not is_module_or_name(name)
    ]
    assert gone == []


IMPORT = re.compile(r"^ *from (millpond[\w.]*) import (.+)$", re.MULTILINE)


def test_every_import_that_the_documents_show_works():
    shown = [
        (path, f"{module}.{name.strip()}")
        for path in documents()
        for block in re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL)
        for module, names in IMPORT.findall(block)
        for name in names.split(",")
    ]
    assert len(shown) > 20
    assert [f"{path.relative_to(ROOT)}: {name}" for path, name in shown if not is_module_or_name(name)] == []


@pytest.mark.parametrize(
    ("name", "there"),
    [
        *[("log/flusher.py", True), ("flusher.py", True), ("docs/how-to", True), ("frontends/kafka", True)],
        *[("service/visible.py", False), ("docs/absent.md", False), ("log/absent", False)],
        *[("text/plain", True), ("retention.ms", True), (".proto", True), ("er.py", False)],
    ],
)
def test_a_name_is_looked_up_as_a_path_of_the_repository_or_of_the_package(name, there):
    assert is_there(name, [path.relative_to(ROOT) for path in files()]) is there


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


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt", "requirements-docs.txt"])
def test_pins_are_names_and_versions_and_nothing_else(name):
    for line in (ROOT / name).read_text().splitlines():
        assert re.fullmatch(r"[a-z0-9][a-z0-9._-]*==[\w.]+", line), line


def pins(name):
    return dict(line.split("==") for line in (ROOT / name).read_text().splitlines())


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-docs.txt"])
def test_no_package_is_pinned_to_two_versions(name):
    """All of them are installed into one environment."""
    dev = pins("requirements-dev.txt")
    assert {
        package: version for package, version in pins(name).items() if dev.get(package, version) != version
    } == {}


def test_every_dependency_is_pinned():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned = set(pins("requirements.txt"))
    wanted = {re.split(r"[<>=\[ ]", each)[0] for each in project["dependencies"]}
    assert wanted <= pinned


def navigation(part):
    """The pages in a part of the website's navigation, in its order."""
    if isinstance(part, str):
        return [part]
    below = part.values() if isinstance(part, dict) else part
    return [page for each in below for page in navigation(each)]


def test_every_page_is_in_the_navigation_of_the_website_once():
    """`make docs-site` fails otherwise, and is not part of `make test`."""
    import yaml

    pages = navigation(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    own = [page for page in pages if not page.startswith("project/")]
    assert sorted(own) == sorted(
        str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")
    )
    assert len(set(pages)) == len(pages)


def test_the_terms_of_the_glossary_are_in_order_and_have_one_line_each():
    rows = re.findall(r"^\| \*\*(.+?)\*\* \| (.+) \|$", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE)
    terms = [term.casefold() for term, _ in rows]
    assert len(terms) >= 50
    assert terms == sorted(terms)
    assert len(set(terms)) == len(terms)
    assert [term for term, meaning in rows if not meaning.endswith(".")] == []
