"""Where a Spark job finds the data, and what it may write there."""

import pytest

from millpond.model.errors import StoreFull
from millpond.model.ids import new_session
from millpond.objects.disk_reserve import Reserve
from millpond.spark.place import Place, store


def test_a_task_writes_nothing_while_the_disk_of_the_directory_is_full(tmp_path):
    """Else it would use up what a broker has released in order to delete."""
    reserve = Reserve(tmp_path, 1024 * 1024)
    reserve.renew()
    task = store(Place.at(tmp_path), new_session())
    place = task.append([b"before"])
    reserve.release()
    for write in (lambda: task.append([b"x"]), lambda: task.put("segments/a", [b"x"])):
        with pytest.raises(StoreFull, match="is full"):
            write()
    assert task.read(place.key, 0, 6) == b"before"
    reserve.renew()
    task.append([b"after"])
    task.close()
