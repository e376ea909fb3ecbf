"""The steps of `docs/tutorial.md`: what to run, and what the page says it prints."""

import re
from pathlib import Path
from typing import NamedTuple

PAGE = (Path(__file__).parents[1] / "docs/tutorial.md").read_text()
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^## (.*)$", re.MULTILINE)


class Step(NamedTuple):
    section: str
    language: str
    """`sh` or `python`."""
    code: str
    printed: str
    """Empty if the page shows no output. `…` stands for the rest of a line."""

    def matches(self, output: str) -> bool:
        pattern = re.escape(self.printed.rstrip()).replace("…", ".*")
        return not self.printed or re.fullmatch(pattern, output.rstrip()) is not None


def sections() -> list[tuple[str, list[Step]]]:
    """The sections of the page that have something to run, in its order."""
    parts = HEADING.split(PAGE)[1:]
    found = [(title, _steps(title, text)) for title, text in zip(parts[::2], parts[1::2], strict=True)]
    return [(title, steps) for title, steps in found if steps]


def _steps(section: str, text: str) -> list[Step]:
    steps: list[Step] = []
    for language, content in BLOCK.findall(text):
        if language == "text":
            steps[-1] = steps[-1]._replace(printed=content)
        else:
            steps.append(Step(section, language, content, ""))
    return steps
