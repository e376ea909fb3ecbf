"""What the values of a topic are, and how they become columns: as they are, text, JSON, Avro, Protobuf.

JSON is Spark's own `from_json`, before the tasks that write; the others are decoded in those tasks, a batch at a
time. A decoder never raises for a bad value: it says what is wrong with it, and the row goes to quarantine.
"""
