"""Runs the probes, one after the other, and keeps what each of them saw."""

import json
import secrets
import traceback
from collections.abc import Sequence
from typing import Any

from tests.peers.differential import (  # noqa: F401  # each registers its probes
    probes_client,
    probes_configs,
    probes_fetch,
    probes_groups,
    probes_offsets,
    probes_produce,
    probes_protocol,
    probes_topics,
    probes_transactions,
)
from tests.peers.differential.subject import PROBES, Subject


def observe(address: str, names: Sequence[str] = ()) -> dict[str, Any]:
    """Probe to what it saw; one that fails says how, and the others go on."""
    run = secrets.token_hex(3)
    return {name: _observed(address, name, run) for name in names or PROBES}


def _observed(address: str, name: str, run: str) -> Any:
    try:
        with Subject(address, name, run) as subject:
            seen = PROBES[name](subject)
    except Exception:  # noqa: BLE001  # whatever goes wrong is an observation too
        return {"probe failed": traceback.format_exc(limit=-3).splitlines()}
    return json.loads(json.dumps(seen).replace(f"-{run}", ""))
