"""MkDocs hooks of `make docs-site`: pages and links from outside of `docs/`, and no loading from the network.

Documents link to each other as files of the repository, so that links work in an editor and on a code host. On the
site, the documents in `OUTSIDE` become pages of their own, a link to a folder of `docs/` leads to its first page, and a
link to any other file of the repository becomes its path.
"""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
OUTSIDE = {
    "README.md": "project/overview.md",
    "ARCHITECTURE.md": "project/architecture.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "SECURITY.md": "project/security.md",
    "examples/README.md": "project/examples.md",
}
SOURCES = {page: source for source, page in OUTSIDE.items()}
FOLDERS = {"examples": "project/examples.md"}
FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")
LOADED = re.compile(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=\"?(?:https?:)?//", re.IGNORECASE)
CANONICAL = re.compile(r"<link rel=\"?canonical\"?[^>]*>", re.IGNORECASE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for source, page in OUTSIDE.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Code blocks stay as they are; everything else gets the site's links."""
    here = page.file.src_uri
    source = SOURCES.get(here, f"docs/{here}")
    first_pages = _first_pages(config.nav)

    def replace(found: re.Match[str]) -> str:
        text, target = found.groups()
        if "://" in target or target.startswith(("#", "mailto:")):
            return found[0]
        path, hash_, anchor = target.partition("#")
        name = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        there = OUTSIDE.get(name) or FOLDERS.get(name) or first_pages.get(name) or _in_docs(name)
        if there is None:
            return text if name in text else f"{text} (`{name}`)"
        return f"[{text}]({posixpath.relpath(there, posixpath.dirname(here) or '.')}{hash_}{anchor})"

    parts = FENCE.split(markdown)
    parts[::2] = [LINK.sub(replace, part) for part in parts[::2]]
    return "".join(parts)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    if found := LOADED.search(CANONICAL.sub("", output)):
        raise PluginError(f"{page.file.src_uri} loads from the network: {found[0]}")
    return output


def _in_docs(name: str) -> str | None:
    return name.removeprefix("docs/") if name.startswith("docs/") and name.endswith(".md") else None


def _first_pages(nav: Any) -> dict[str, str]:
    """Folder of the repository to the first page of the navigation that lies in it."""
    found: dict[str, str] = {}
    for page in _pages(nav):
        found.setdefault(f"docs/{posixpath.dirname(page)}", page)
    return found


def _pages(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict):
        for below in nav.values():
            yield from _pages(below)
    else:
        for below in nav:
            yield from _pages(below)
