"""What counts as bytes here: anything flat that can be read without a copy."""

Buffer = bytes | bytearray | memoryview
"""Read-only use. A memoryview must be contiguous and of format "B", as `memoryview(bytes)` is."""
