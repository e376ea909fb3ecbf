"""Subjects of certificates as Java prints them, and Kafka's rules that turn them into names.

The expected texts are the output of OpenJDK 17's `X500Principal.getName()` and of Kafka 4.0's `SslPrincipalMapper`.
"""

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.security.x509_certificates import certificate

from millpond.model.errors import AuthenticationFailed
from millpond.security.principal_mapping import PrincipalMapping, subject_name

CN, ORG, OU, C = (
    NameOID.COMMON_NAME,
    NameOID.ORGANIZATION_NAME,
    NameOID.ORGANIZATIONAL_UNIT_NAME,
    NameOID.COUNTRY_NAME,
)
UID, DC = NameOID.USER_ID, NameOID.DOMAIN_COMPONENT


def name(*rdns):
    """A name of parts: each is an attribute and its value, or a list of such pairs."""
    sets = [rdn if isinstance(rdn, list) else [rdn] for rdn in rdns]
    return x509.Name(
        [x509.RelativeDistinguishedName([x509.NameAttribute(*pair) for pair in each]) for each in sets]
    )


def printed(subject):
    """After a round trip through DER, as a broker sees it."""
    return subject_name(certificate(subject).subject)


# -- subjects -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        (
            name((C, "US"), (ORG, "Org, Inc."), (OU, "Users"), (CN, "Duke")),
            r"CN=Duke,OU=Users,O=Org\, Inc.,C=US",
        ),
        (name((DC, "com"), (DC, "example"), (UID, "duke")), "UID=duke,DC=example,DC=com"),
        (name((NameOID.EMAIL_ADDRESS, "a@b.c"), (CN, "x")), "CN=x,1.2.840.113549.1.9.1=#16056140622e63"),
        (
            name((NameOID.SERIAL_NUMBER, "123"), (NameOID.TITLE, "Dr"), (CN, "x")),
            "CN=x,2.5.4.12=#0c024472,2.5.4.5=#1303313233",
        ),
        (
            name(
                (NameOID.STREET_ADDRESS, "1 Main"),
                (NameOID.LOCALITY_NAME, "L"),
                (NameOID.STATE_OR_PROVINCE_NAME, "ST"),
            ),
            "ST=ST,L=L,STREET=1 Main",
        ),
        (name([(CN, "b"), (ORG, "a")]), "CN=b+O=a"),
        (name([(ORG, "a"), (CN, "b"), (UID, "c")]), "CN=b+O=a+UID=c"),
        (name((CN, "  lead and trail  ")), r"CN=\ \ lead and trail\ \ "),
        (name((CN, " ")), "CN=\\ "),
        (name((CN, "a  b")), "CN=a  b"),
        (name((CN, "#hash#in")), r"CN=\#hash\#in"),
        (name((CN, 'a+b"c\\d<e>f;g=h,i')), r"CN=a\+b\"c\\d\<e\>f\;g\=h\,i"),
        (name((CN, "Jürgen 中😀")), "CN=Jürgen 中😀"),
        (name((CN, "nl\nx\ttab")), "CN=nl\nx\ttab"),
        (name((CN, "nul\0x")), r"CN=nul\00x"),
        (name((CN, "@_*&%!")), "CN=@_*&%!"),
        (name((CN, "\u00a0x\u00a0")), "CN=\u00a0x\u00a0"),
        (name((x509.ObjectIdentifier("1.2.3.4"), "zz")), "1.2.3.4=#0c027a7a"),
        (name((UID, "x" * 300)), "UID=" + "x" * 300),
        (name(), ""),
    ],
)
def test_a_subject_is_printed_as_java_does(subject, expected):
    assert printed(subject) == expected


@pytest.mark.parametrize(
    ("tag", "expected"),
    [(0x1A, "#1a036b6c6d"), (0x12, "#12036b6c6d"), (0x14, "klm"), (0x16, "klm"), (0x0C, "klm")],
)
def test_a_value_of_an_unusual_type_is_printed_as_der(tag, expected):
    """The type of the name `klm` in a certificate is changed; nothing verifies its signature here."""
    from cryptography.hazmat.primitives.serialization import Encoding

    data = certificate(name((CN, "klm"))).public_bytes(Encoding.DER)
    assert data.count(b"\x0c\x03klm") == 2
    changed = x509.load_der_x509_certificate(data.replace(b"\x0c\x03klm", bytes([tag]) + b"\x03klm"))
    assert subject_name(changed.subject) == f"CN={expected}"


@given(st.lists(st.text(min_size=1, max_size=5), min_size=2, max_size=2, unique=True))
def test_two_subjects_are_never_printed_alike(values):
    def subject(value):
        return name((ORG, "x"), (CN, value))

    one, two = (subject_name(subject(value)) for value in values)
    assert one != two
    assert one.endswith(",O=x")


@given(st.text(min_size=1, max_size=8), st.text(min_size=1, max_size=8))
def test_a_value_cannot_imitate_another_attribute(first, second):
    """Without what is escaped, a comma or a plus sign only stands between attributes."""
    text = subject_name(name((ORG, first), (CN, second)))
    unescaped = [end for end, char in enumerate(text) if char in ",+" and not _is_escaped(text, end)]
    assert len(unescaped) == 1


def _is_escaped(text, end):
    before = text[:end]
    return (len(before) - len(before.rstrip("\\"))) % 2 == 1


# -- rules ----------------------------------------------------------------------------------------------------

DUKE = "CN=Duke,OU=ServiceUsers,O=Org,C=US"
SME = "CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US"
KAFKAS = ", ".join(
    [
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L",
        "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L",
        "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U",
        "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U",
        "DEFAULT",
    ]
)


@pytest.mark.parametrize(
    ("rules", "subject", "expected"),
    [
        *[("DEFAULT", DUKE, DUKE), ("  DEFAULT  ", DUKE, DUKE), (",, DEFAULT ,", DUKE, DUKE)],
        *[
            (KAFKAS, DUKE, "duke"),
            (KAFKAS, SME, "duke@sme"),
            (KAFKAS, "cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        ],
        (KAFKAS, "cN=duke,OU=JavaSoft,O=Sun Microsystems", "DUKE"),
        (KAFKAS, "OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
        (
            r"RULE:^CN=((\\, *|\w)+)(,.*|$)/$1/,DEFAULT",
            r"CN=Tkac\, Adam,OU=ITZ,DC=geodis,DC=cz",
            r"Tkac\, Adam",
        ),
        ("RULE:^CN=([^,DEFAULT,]+)(,.*|$)/$1/", "CN=duke,O=x", "duke"),
        (r"RULE:,RULE:,/,RULE:,\//U,DEFAULT", ",RULE:,", ",RULE:,/"),
        ("RULE:^CN=(.*?)(,.*)?$/$1/", DUKE, "Duke"),
        (
            "RULE:CN=(.*?)(,.*)?/$1/",
            DUKE,
            "Duke,OU=ServiceUsers,O=Org,C=US",
        ),  # no `$`: every occurrence is replaced
        ("RULE:.*/x/", DUKE, "xx"),
        ("RULE:^CN=([^,]*).*$/$12/", DUKE, "Duke2"),
        ("RULE:^CN=([^,]*).*$/$0/", DUKE, DUKE),
        (r"RULE:^CN=([^,]*).*$/\$1/", DUKE, "$1"),
        (r"RULE:^CN=([^,]*).*$/a\/b\\c/", DUKE, r"a/b\c"),
        ("RULE:^(?:CN=(a)|CN=(.*))$/[$1|$2]/", "CN=b", "[|b]"),
        (r"RULE:CN=\w+/x/,RULE:^CN=(\w+),.*$/<$1>/", DUKE, "<Duke>"),
        ("RULE:^CN=(.*)$/$1/U", "CN=straße", "STRASSE"),
    ],
)
def test_the_first_rule_that_matches_makes_the_name(rules, subject, expected):
    assert PrincipalMapping(rules).name(subject) == expected


@pytest.mark.parametrize(
    ("rules", "subject"),
    [
        ("", DUKE),
        (" , ", DUKE),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", SME),
        ("RULE:CN=Duke/x/", DUKE),  # a part of the subject is not enough
        ("RULE:OU=ServiceUsers,.*/x/", DUKE),
        (r"RULE:^CN=(\w+)$/$1/", "CN=Jürgen"),  # as in Java, `\w` is ASCII
        ("RULE:^CN=(.*)$/$1/", "CN=a\nb"),
    ],
)
def test_a_subject_that_no_rule_matches_is_refused(rules, subject):
    with pytest.raises(AuthenticationFailed):
        PrincipalMapping(rules).name(subject)


@pytest.mark.parametrize(
    "rules",
    [
        *["default", "DEFAUL", "DEFAULT/L", "DEFAULT/U", "DEFAULT RULE://", "DEFAULT,RULE:x", "x"],
        *["RULE:CN=(.*?),OU=ServiceUsers.*/$1", "rule:^CN=(.*?),OU=ServiceUsers.*$/$1/"],
        *["RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L/U", "RULE:^CN=(.*?),OU=ServiceUsers.*$/L"],
        *["RULE:^CN=(.*?),OU=ServiceUsers.*$/LU", "RULE:^CN=(.*)$/$1/l", "RULE:^CN=([/$1/"],
        *[
            "RULE:^CN=.*$/$1/",
            "RULE:^CN=(.*)$/$2/",
            "RULE:^CN=(.*)$/$/",
            "RULE:^CN=(.*)$/${x}/",
            "RULE:^(?<x>.*)$/$1/",
        ],
    ],
)
def test_rules_that_cannot_be_followed_are_refused(rules):
    with pytest.raises(ValueError):  # noqa: PT011  # several texts
        PrincipalMapping(rules)


@given(st.text("DEFAULTRULE:/,\\$1( )LU", max_size=30), st.text(max_size=10))
def test_random_rules_are_parsed_or_refused(rules, subject):
    try:
        name = PrincipalMapping(rules).name(subject)
    except (ValueError, AuthenticationFailed):
        return
    assert isinstance(name, str)
