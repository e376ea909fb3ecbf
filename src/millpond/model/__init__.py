"""Pure data that all layers share: ids, topics, extents, errors, the clock. No I/O, no imports from the
layers above."""
