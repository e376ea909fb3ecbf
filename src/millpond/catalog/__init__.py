"""The catalog: the SQL database that assigns all offsets and decides every conflict between writers.

Each module owns some tables. Its named statements are at its top. Its functions take the transaction they
run in as first argument, so that callers decide which operations commit together.
"""
