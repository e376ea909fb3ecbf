"""The formats: how files and positions become part of a table in one commit."""
