"""Bytes: the store that keeps objects, its kinds and their wrappers. Synchronous and thread-safe."""
