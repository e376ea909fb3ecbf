"""TLS and the certificates of the listeners."""
