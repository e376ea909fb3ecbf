"""compose.yaml as Compose reads it: merged, with variables filled in by their defaults."""

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
FILE = ROOT / "compose.yaml"
VARIABLE = re.compile(r"\$\{(\w+):-([^}]*)\}")
BROKERS = ("broker-1", "broker-2", "broker-3")


def services() -> dict[str, dict[str, Any]]:
    return yaml.safe_load(VARIABLE.sub(r"\2", FILE.read_text()))["services"]


def environment(service: str) -> dict[str, str]:
    return {name: str(value) for name, value in services()[service]["environment"].items()}
