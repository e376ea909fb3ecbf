"""Pure data that every layer shares: ids, topics, extents, errors, the clock. No I/O, no imports from above."""
