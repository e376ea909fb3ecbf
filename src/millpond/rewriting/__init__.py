"""Rewriting stored data: what to merge, compact and expire. Brokers and Spark jobs execute it.

Two modules use the catalog and the store: `inputs` reads what a plan needs, `commits` commits a compaction. All others
are pure.
"""
