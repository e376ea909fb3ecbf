"""Loaded by every Python process of a driver under test: stops the one that comes to the place that the trap names.

The file named by `MILLPOND_TRAP` holds the place. Whoever gets there first takes the file away, leaves its process id
in `<file>.reached`, and sleeps until it is killed. Nothing in the product knows of it: functions are wrapped as
their modules are loaded.
"""

import functools
import importlib.abc
import importlib.util
import os
import sys
import time

BEFORE, AFTER = "before", "after"
PLACES = {
    "inside write": ("millpond.spark.sink.task", "_store", AFTER),
    "before the commit": ("millpond.spark.sink.sink_commit", "_commit", BEFORE),
    "inside the commit": ("millpond.spark.sink.sink_commit", "_append", AFTER),
    "after the commit": ("millpond.spark.sink.sink_commit", "_commit", AFTER),
    "between offset log and commit log": ("millpond.spark.sink.writers", "stream_writer", BEFORE),
}


def stop_here(place):
    trap = os.environ["MILLPOND_TRAP"]
    try:
        with open(trap) as file:
            if file.read() != place:
                return
        os.rename(trap, trap + ".taken")
    except FileNotFoundError:
        return
    with open(trap + ".writing", "w") as file:
        file.write(str(os.getpid()))
    os.rename(trap + ".writing", trap + ".reached")
    time.sleep(600)


def trapped(function, place, when):
    @functools.wraps(function)
    def wrapped(*arguments, **named):
        if when == BEFORE:
            stop_here(place)
        result = function(*arguments, **named)
        if when == AFTER:
            stop_here(place)
        return result

    return wrapped


class Loader(importlib.abc.Loader):
    def __init__(self, loader, name):
        self._loader, self._name = loader, name

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        self._loader.exec_module(module)
        for place, (home, name, when) in PLACES.items():
            if home == self._name:
                setattr(module, name, trapped(getattr(module, name), place, when))


class Finder(importlib.abc.MetaPathFinder):
    def __init__(self):
        self._busy = False

    def find_spec(self, name, path=None, target=None):
        if self._busy or name not in {home for home, _, _ in PLACES.values()}:
            return None
        self._busy = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._busy = False
        spec.loader = Loader(spec.loader, name)
        return spec


if "MILLPOND_TRAP" in os.environ:
    sys.meta_path.insert(0, Finder())
