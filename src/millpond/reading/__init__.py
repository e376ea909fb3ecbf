"""Reading back: from catalog rows to stamped batches. Synchronous and thread-safe; brokers and Spark tasks share it."""
