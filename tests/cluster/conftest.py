"""Databases for tests with several brokers."""

from tests.cluster.over_postgres import databases

__all__ = ["databases"]
