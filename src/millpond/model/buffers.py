"""The types accepted as bytes: anything flat that can be read without a copy."""

Buffer = bytes | bytearray | memoryview
"""For reading only. A memoryview must be contiguous and of format "B", as `memoryview(bytes)` is."""
