"""How objects are named and laid out. Pure functions over bytes: no I/O, no catalog, no store."""
