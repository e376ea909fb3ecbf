"""The encodings of a topic's values, and how they become columns: bytes, text, JSON, Avro, Protobuf.

JSON is decoded by Spark's own `from_json`, before the tasks that write. The others are decoded in those
tasks, one batch at a time. A decoder never raises for a bad value: it returns the reason, and the row goes to
the quarantine.
"""
