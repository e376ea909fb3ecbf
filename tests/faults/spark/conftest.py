"""The same Spark session as in tests/spark."""

from tests.spark.conftest import closed_places, spark

__all__ = ["closed_places", "spark"]
