"""Addresses as people write them, and which hosts are this machine."""

import pytest

from millpond.model.addresses import is_loopback, network_of, parse_addresses


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("h:1", ["h:1"]),
        (" h:1 , [::1]:65535,", ["h:1", "[::1]:65535"]),
        (":9999", ["127.0.0.1:9999"]),
        ("[fe80::1%eth0]:1", ["[fe80::1%eth0]:1"]),
        ("under_score.svc.cluster.local:1", ["under_score.svc.cluster.local:1"]),
    ],
)
def test_addresses(text, found):
    assert parse_addresses(text) == found


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            ",",
            "nonsense",
            "h",
            "h:",
            ":",
            "h:0",
            "h:65536",
            "h:-1",
            "h:http",
            "http://h:1",
            "h:1/x",
            "u@h:1",
        ),
        *("a b:1", "::1:9999", "[nonsense]:1", "[127.0.0.1]:1", "h:1,nonsense", "h:\u0661"),
    ],
)
def test_what_is_no_address_is_refused_with_what_one_is(text):
    with pytest.raises(
        ValueError, match=r"^host:port of a broker's gRPC listener, for example 127\.0\.0\.1:9999$"
    ):
        parse_addresses(text)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        *[(host, True) for host in ("127.0.0.1", "127.8.9.1", "localhost", "LOCALHOST", "::1")],
        *[(host, False) for host in ("127.example.com", "localhost.example", "::1234", "0.0.0.0", "::", "a")],
    ],
)
def test_an_address_is_loopback_by_its_value_and_not_by_its_first_characters(host, expected):
    assert is_loopback(host) is expected


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_an_ipv6_network_is_one_client(host, network):
    assert network_of(host) == network
