"""The catalog: the SQL database that is the log's only sequencer and only judge.

Each module owns some tables: its named statements stand at its top, and its functions take the transaction they
run in as their first argument, so that callers decide what belongs together.
"""
