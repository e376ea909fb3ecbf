"""The commands of `millpond pipeline`, one file for each kind."""
