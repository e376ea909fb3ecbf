"""The Dockerfile, read as instructions."""

import json
import re
import shlex
from typing import NamedTuple

from tests.deploy.composition import ROOT

FILE = ROOT / "Dockerfile"


class Instruction(NamedTuple):
    name: str
    rest: str


def stages() -> list[list[Instruction]]:
    """Each begins with its FROM."""
    found: list[list[Instruction]] = []
    for instruction in _instructions():
        if instruction.name == "FROM":
            found.append([])
        found[-1].append(instruction)
    return found


def last(name: str) -> str:
    """What the image says: the last such instruction of the last stage."""
    return [each.rest for each in stages()[-1] if each.name == name][-1]


def copied() -> list[str]:
    """What the first stage takes from the source."""
    return [source for name, rest in stages()[0] if name == "COPY" for source in rest.split()[:-1]]


def environment() -> dict[str, str]:
    words = [word for each in stages()[-1] if each.name == "ENV" for word in shlex.split(each.rest)]
    return dict(word.split("=", 1) for word in words)


def health_command() -> list[str]:
    return json.loads(last("HEALTHCHECK").partition("CMD ")[2])


def _instructions() -> list[Instruction]:
    lines = [line for line in FILE.read_text().splitlines() if line.strip() and not line.startswith("#")]
    whole = re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines()
    return [Instruction(*line.split(maxsplit=1)) for line in whole]
