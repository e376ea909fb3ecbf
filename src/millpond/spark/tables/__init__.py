"""Tables made of topics: Parquet, Delta and Iceberg, without any jar.

Spark's tasks decode the records and write the Parquet files (`writing`); the driver makes them count with one commit
that also says how far each partition has been read (`formats`). The next run goes on from there, so a run may be
killed anywhere: what it had not committed is no part of the table, and is read again.
"""
