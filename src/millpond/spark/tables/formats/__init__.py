"""The table formats: how one commit adds files to a table and moves its positions."""
