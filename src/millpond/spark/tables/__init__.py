"""Tables made from topics: Parquet, Delta and Iceberg, without any jar.

Spark's tasks decode the records and write the Parquet files (`file_writer`). The driver publishes them with one
commit that also stores how far each partition has been read (`formats`). The next run continues from there,
so a run may be killed at any time: what it had not committed is not part of the table and is read again.
"""
