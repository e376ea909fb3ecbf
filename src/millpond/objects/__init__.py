"""The object stores: where bytes are made durable. The protocol, its implementations and their wrappers.
Synchronous and thread-safe."""
