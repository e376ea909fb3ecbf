"""Fixtures for tests of hostile input."""

from tests.disks import small_disk_of

__all__ = ["small_disk_of"]
