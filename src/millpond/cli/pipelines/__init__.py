"""The commands of `millpond pipeline`, one module for each kind."""
