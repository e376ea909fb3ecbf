"""Rows into topics, exactly once: tasks store batches, and one catalog transaction on the driver gives them offsets."""

from millpond.spark.sink.writers import stream_writer, writer

__all__ = ["stream_writer", "writer"]
