"""Names and layout of objects. Pure functions over bytes: no I/O, no catalog, no store."""
