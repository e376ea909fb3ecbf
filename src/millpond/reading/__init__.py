"""Reading stored data: from catalog rows to stamped batches. Synchronous and thread-safe; used by brokers and
Spark."""
