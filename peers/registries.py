"""One function per package registry: each fills an empty folder. The machine's settings (for pip, Maven, npm,
Go and APT) select the registry; none is named here."""

import re
import shutil
import sys
from pathlib import Path

from peers.home import Unavailable, program, run

MAVEN_POMS = Path(__file__).resolve().parent / "maven"
SYSTEM_LIBRARIES = frozenset(("libc6", "libgcc-s1", "gcc-12-base", "gcc-13-base", "gcc-14-base"))


def maven(purpose: str, folder: Path, pom: str, **properties: str) -> None:
    """The jars that `maven/<pom>.xml` names, with their runtime dependencies."""
    given = [f"-D{key.replace('_', '.')}={value}" for key, value in properties.items()]
    command: list[str | Path] = [
        program("mvn", purpose),
        "-q",
        "-B",
        "-Dstyle.color=never",
        "-f",
        MAVEN_POMS / f"{pom}.xml",
    ]
    command += ["dependency:copy-dependencies", f"-DoutputDirectory={folder}", "-DincludeScope=runtime"]
    run(purpose, [*command, *given], folder=folder)


def pip(purpose: str, folder: Path, *packages: str) -> None:
    """A separate virtual environment, so that peers and our dependencies do not affect each other."""
    run(purpose, [sys.executable, "-m", "venv", folder])
    run(
        purpose,
        [folder / "bin" / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages],
    )


def go_install(purpose: str, folder: Path, package: str) -> None:
    """Build `package@version` into `folder/bin`."""
    environment = {"GOBIN": str(folder / "bin")}
    run(purpose, [program("go", purpose), "install", package], folder=folder, environment=environment)


def go_build(purpose: str, folder: Path, sources: Path, name: str) -> None:
    """Build a program of ours from its folder, as `folder/bin/<name>`."""
    command: list[str | Path] = [
        program("go", purpose),
        "build",
        "-mod=readonly",
        "-o",
        folder / "bin" / name,
        ".",
    ]
    run(purpose, command, folder=sources)


def npm(purpose: str, folder: Path, sources: Path) -> None:
    """A script of ours, next to the packages in its package.json."""
    npm_program = program("npm", purpose)
    program("node", purpose)
    for source in sources.iterdir():
        shutil.copy(source, folder)
    command = [npm_program, "install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts"]
    run(purpose, [*command, "--loglevel=error"], folder=folder)


def debian(purpose: str, folder: Path, package: str) -> None:
    """Unpack the package and its libraries into `folder` without installing them: this needs no root and
    changes nothing outside. The machine's own C library is used."""
    apt_get, apt_cache = program("apt-get", purpose), program("apt-cache", purpose)
    dpkg = program("dpkg-deb", purpose)
    names = debian_closure(run(purpose, [apt_cache, *_DEPENDS_OPTIONS, package]))
    if package not in names:
        raise Unavailable(f"{purpose}: APT knows no package {package} (is its list fresh? `apt-get update`).")
    run(purpose, [apt_get, "download", *sorted(names - SYSTEM_LIBRARIES)], folder=folder)
    for archive in folder.glob("*.deb"):
        run(purpose, [dpkg, "-x", archive, folder])
        archive.unlink()


_DEPENDS_OPTIONS = (
    *("depends", "--recurse", "--no-recommends", "--no-suggests", "--no-conflicts", "--no-breaks"),
    *("--no-replaces", "--no-enhances"),
)


def debian_closure(listing: str) -> set[str]:
    return set(re.findall(r"^([a-z0-9][a-z0-9.+-]*)$", listing, re.MULTILINE))
