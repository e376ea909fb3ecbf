"""Reads deploy/prometheus and deploy/grafana: which alerts and panels there are, and which metrics they use."""

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"
ALERTS_FILE = DEPLOY / "prometheus/alerts.yaml"
DASHBOARD_FILE = DEPLOY / "grafana/millpond.json"
METRIC = re.compile(r"\b(?:millpond|process)_\w+")


def alerts() -> dict[str, dict[str, Any]]:
    [group] = yaml.safe_load(ALERTS_FILE.read_text())["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DASHBOARD_FILE.read_text())
    return found


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("dashboard", DEPLOY / "grafana/generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def queries() -> dict[str, str]:
    """The queries of the dashboard, by title of the panel and legend."""
    return {
        f"{panel['title']}: {target['legendFormat']}": target["expr"]
        for panel in dashboard()["panels"]
        for target in panel.get("targets", ())
    }


def metrics_in(expression: str) -> set[str]:
    return set(METRIC.findall(expression))
