"""Addresses of a broker: the names of its interfaces, and which hosts are this machine."""

import ipaddress
from typing import Final

INTERFACES: Final = ("kafka", "grpc", "http")
LOCALHOST: Final = "localhost"
DEFAULT_ADDRESS: Final = "127.0.0.1:9999"
"""The address to which clients connect unless one is set: the gRPC interface of a local broker."""
LOOPBACK: Final = "127.0.0.1"
PORT_MAX: Final = 65_535
ADDRESS_FORM: Final = "host:port of a broker's gRPC listener, for example 127.0.0.1:9999"
IPV6_NETWORK_BITS: Final = 64
"""One client usually has a whole network of IPv6 addresses."""
WILDCARD_HOSTS: Final = ("0.0.0.0", "::")  # noqa: S104  # used for comparison only


def is_loopback(host: str) -> bool:
    """Checks the address itself, not its prefix: `127.example.com` may be anywhere."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == LOCALHOST


def client_address(host: str) -> str:
    """The address of a client, as ACLs name it: without a zone, and as IPv4 if it was mapped to IPv6."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def network_of(host: str) -> str:
    """What is counted as one client address: an IPv4 address, or an IPv6 network."""
    address = ipaddress.ip_address(client_address(host))
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    return str(ipaddress.ip_network((address, IPV6_NETWORK_BITS), strict=False))


def network_or_host(host: str) -> str:
    """The same; the name itself of a socket without an address."""
    try:
        return network_of(host)
    except ValueError:
        return host


def split_address(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def join_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_wildcard(address: str) -> bool:
    """Whether it is an address to listen on that cannot be connected to."""
    return split_address(address)[0] in WILDCARD_HOSTS


def parse_addresses(text: str) -> list[str]:
    """Parse `host:port`, or several separated by commas. The default host is this machine. Raises ValueError
    with the expected form."""
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
