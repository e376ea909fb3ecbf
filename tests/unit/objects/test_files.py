"""What the file store asks of the operating system."""

import os
from itertools import pairwise

import pytest

from millpond.objects import files


@pytest.mark.parametrize("sizes", [[], [0], [10], [7, 0, 9], [10, 10], [25, 3], [4, 4, 4, 4, 4]])
def test_a_large_object_reaches_the_disk_piece_by_piece(tmp_path, monkeypatch, sizes):
    """Else whoever waits for another file's fsync waits for all of it."""
    monkeypatch.setattr(files, "PIECE_BYTES", 8)
    synced, fdatasync = [], os.fdatasync

    def sync(descriptor):
        fdatasync(descriptor)
        synced.append(os.fstat(descriptor).st_size)

    monkeypatch.setattr(os, "fdatasync", sync)
    parts = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    descriptor = files.new_file(tmp_path / "object")
    files.write_in_synced_pieces(descriptor, parts)
    os.close(descriptor)
    assert (tmp_path / "object").read_bytes() == b"".join(parts)
    assert synced == sorted(set(synced))
    assert all(after - before <= 8 + max(sizes) for before, after in pairwise([0, *synced]))
