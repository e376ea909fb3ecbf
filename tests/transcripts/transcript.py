"""Transcripts: commands, `----`, and what was said in return. A file is a story; `#` begins a remark.

`REWRITE_TRANSCRIPTS=1 pytest tests/transcripts` writes what was said into the files, for a person to read over.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

DIVIDER = "----"


@dataclass(frozen=True)
class Scene:
    """Remarks and a command as they stand in the file, and the lines expected after it."""

    head: tuple[str, ...]
    expected: tuple[str, ...]

    @property
    def command(self) -> str:
        return self.head[-1]

    def text(self, said: tuple[str, ...]) -> str:
        return "\n".join((*self.head, DIVIDER, *said))


def read_scenes(path: Path) -> list[Scene]:
    return [_scene(block) for block in path.read_text().strip().split("\n\n")]


def _scene(block: str) -> Scene:
    lines = tuple(block.split("\n"))
    if DIVIDER not in lines:
        return Scene(lines, ())
    cut = lines.index(DIVIDER)
    return Scene(lines[:cut], lines[cut + 1 :])


def play(path: Path, perform: Callable[[str], list[str]]) -> None:
    """Perform every command of the file, and compare what was said."""
    texts = []
    for scene in read_scenes(path):
        if scene.command.startswith("#"):
            texts.append("\n".join(scene.head))
            continue
        said = tuple(perform(scene.command))
        texts.append(scene.text(said))
        if "REWRITE_TRANSCRIPTS" not in os.environ:
            assert scene.text(said) == scene.text(scene.expected), f"in {path.name}"
    if "REWRITE_TRANSCRIPTS" in os.environ:
        path.write_text("\n\n".join(texts) + "\n")
