"""Where a broker is reached: the names of its faces, and which hosts are this machine."""

import ipaddress
from typing import Final

FACES: Final = ("kafka", "grpc", "http")
LOCALHOST: Final = "localhost"


def is_loopback(host: str) -> bool:
    """By what it is, not by how it begins: `127.example.com` is anywhere."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == LOCALHOST
