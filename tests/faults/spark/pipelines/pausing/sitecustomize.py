"""Loaded by every Python process of a job that is about to be killed, because this folder is on its PYTHONPATH.

PAUSE_AT names a function and a call of it, such as `millpond.spark.pipelines.merge:_commit 2 before`. When it comes to
that, the process says so by making the file PAUSED, and waits for its end.
"""

import functools
import importlib
import os
import time
from pathlib import Path


def _pause_at(name: str, number: int, when: str, paused: Path) -> None:
    module_name, _, path = name.partition(":")
    owner = importlib.import_module(module_name)
    *parents, last = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    genuine = getattr(owner, last)
    calls = 0

    @functools.wraps(genuine)
    def pausing(*arguments, **named):
        nonlocal calls
        calls += 1
        if calls == number and when == "before":
            _pause(paused)
        answer = genuine(*arguments, **named)
        if calls == number and when == "after":
            _pause(paused)
        return answer

    setattr(owner, last, pausing)


def _pause(paused: Path) -> None:
    paused.touch()
    time.sleep(600)


if "PAUSE_AT" in os.environ:
    function, call, moment = os.environ["PAUSE_AT"].split()
    _pause_at(function, int(call), moment, Path(os.environ["PAUSED"]))
