"""Small disks, mounted in memory, and which files of a folder are open."""

import contextlib
import os
import shutil
import subprocess

import pytest


def count_open_files(folder):
    """How many files of a folder this process has open."""
    found = 0
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # it was only open for this very question
            found += os.readlink(f"/proc/self/fd/{number}").startswith(str(folder))
    return found


@pytest.fixture
def small_disk_of(tmp_path):
    """Mounts a file system of so many bytes in memory."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("a small disk is a mount, and mounting needs root")
    mounted = []

    def mount(size):
        disk = tmp_path / f"disk-{len(mounted)}"
        disk.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"cannot mount a small disk here: {done.stderr.strip()}")
        mounted.append(disk)
        return disk

    yield mount
    for disk in mounted:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)
