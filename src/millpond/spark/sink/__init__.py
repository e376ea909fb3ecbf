"""Appends rows to topics exactly once: tasks store batches, and one catalog transaction on the driver assigns
their offsets."""

from millpond.spark.sink.writers import stream_writer, writer

__all__ = ["stream_writer", "writer"]
