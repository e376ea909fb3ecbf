"""Where a broker is reached: the names of its faces, and which hosts are this machine."""

import ipaddress
from typing import Final

FACES: Final = ("kafka", "grpc", "http")
LOCALHOST: Final = "localhost"
DEFAULT_ADDRESS: Final = "127.0.0.1:9999"
"""Where clients look for a broker unless an address is set: its gRPC face."""
LOOPBACK: Final = "127.0.0.1"
PORT_MAX: Final = 65_535
ADDRESS_FORM: Final = "host:port of a broker's gRPC listener, for example 127.0.0.1:9999"
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


def parse_addresses(text: str) -> list[str]:
    """`host:port`, or several with commas between. Without a host it is this machine. Raises ValueError with what is
    expected."""
    found = [_parse_address(part.strip()) for part in text.split(",") if part.strip()]
    if not found:
        raise ValueError(ADDRESS_FORM)
    return found


def _parse_address(text: str) -> str:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdecimal() or not 1 <= int(port) <= PORT_MAX:
        raise ValueError(ADDRESS_FORM)
    if not _is_host(host):
        raise ValueError(ADDRESS_FORM)
    return f"{host or LOOPBACK}:{port}"


def _is_host(host: str) -> bool:
    """A name, an IPv4 address, or an IPv6 address in brackets; not a URL."""
    if host.startswith("[") and host.endswith("]"):
        try:
            return ipaddress.ip_address(host[1:-1].partition("%")[0]).version == 6
        except ValueError:
            return False
    return not any(each.isspace() or each in "/:[]@" for each in host)
