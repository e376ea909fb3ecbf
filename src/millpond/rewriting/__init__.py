"""Rewriting what is stored, the pure part: what to merge, compact and expire. Brokers and Spark jobs perform it."""
