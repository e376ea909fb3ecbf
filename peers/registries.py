"""One function per package registry: each fills an empty folder. Which registry answers is the machine's business
(its pip, Maven, npm, Go and APT settings); nothing here names one."""

import re
import shutil
import sys
from pathlib import Path

from peers.home import Unavailable, program, run

MAVEN_POMS = Path(__file__).resolve().parent / "maven"
SYSTEM_LIBRARIES = frozenset(("libc6", "libgcc-s1", "gcc-12-base", "gcc-13-base", "gcc-14-base"))


def maven(purpose: str, folder: Path, pom: str, **properties: str) -> None:
    """The jars that `maven/<pom>.xml` names, with what they need at run time."""
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
    """A virtual environment of its own, so that no peer meets our dependencies."""
    run(purpose, [sys.executable, "-m", "venv", folder])
    run(
        purpose,
        [folder / "bin" / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages],
    )


def go_install(purpose: str, folder: Path, package: str) -> None:
    """`package@version`, built into `folder/bin`."""
    environment = {"GOBIN": str(folder / "bin")}
    run(purpose, [program("go", purpose), "install", package], folder=folder, environment=environment)


def go_build(purpose: str, folder: Path, sources: Path, name: str) -> None:
    """A program of ours, from its folder, as `folder/bin/<name>`."""
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
    """A script of ours beside the packages that its package.json names."""
    npm_program = program("npm", purpose)
    program("node", purpose)
    for source in sources.iterdir():
        shutil.copy(source, folder)
    command = [npm_program, "install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts"]
    run(purpose, [*command, "--loglevel=error"], folder=folder)


def debian(purpose: str, folder: Path, package: str) -> None:
    """The package and its libraries, unpacked into `folder` without being installed: no root, no trace outside.
    The C library stays the machine's."""
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
