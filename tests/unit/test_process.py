"""Settings of a broker's process, each in a process of its own."""

import subprocess
import sys

PROGRAM = """
import gc
from millpond.process import COLLECTION_THRESHOLDS, collect_rarely

frozen = [[]]
collect_rarely()
made_later = [[]]
tracked = [id(each) for each in gc.get_objects()]
print(id(frozen) in tracked, id(made_later) in tracked, gc.isenabled(), gc.get_threshold() == COLLECTION_THRESHOLDS)
"""


def test_only_later_objects_are_looked_through_and_less_often():
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False", "True", "True", "True"]
