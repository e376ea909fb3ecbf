"""The command line: one small module per noun."""
