"""Where a broker is reached: the names of its faces, and which hosts are this machine."""

import ipaddress
from typing import Final

FACES: Final = ("kafka", "grpc", "http")
LOCALHOST: Final = "localhost"
EVERYWHERE: Final = ("0.0.0.0", "::")  # noqa: S104  # named, in order to be refused


def is_loopback(host: str) -> bool:
    """By what it is, not by how it begins: `127.example.com` is anywhere."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == LOCALHOST


def split_address(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def join_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_everywhere(address: str) -> bool:
    """Whether it is an address to listen on, but none to connect to."""
    return split_address(address)[0] in EVERYWHERE
