"""Rewriting stored data, the pure part: what to merge, compact and expire. Brokers and Spark jobs execute it."""
