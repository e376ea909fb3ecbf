"""Client certificates: the subject as Java prints it, and the rules that turn it into the name of a user, those of
Kafka's `ssl.principal.mapping.rules`.

Kafka's rules are written for the text of Java's `X500Principal.getName()` (RFC 2253): the most specific name first, the
value of a less known attribute as the hexadecimal form of its DER. TLS has verified the certificate before.
"""

import logging
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from millpond.model.errors import AuthenticationFailed

if TYPE_CHECKING:  # a broker without TLS need not import it
    from cryptography import x509

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""The attributes that RFC 2253 has short names for."""
_TEXTS: Final = {0x0C: "utf-8", 0x13: "ascii", 0x14: "latin-1", 0x16: "ascii"}
"""Encodings by DER tag: UTF8String, PrintableString, T61String, IA5String. Others are printed as DER."""
_ESCAPED: Final = re.compile(r'[,=+<>#;"\\]')
_RULE: Final = re.compile(
    r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)|)\s*(?:,|\Z)", re.DOTALL
)
_REFERENCE: Final = re.compile(r"\\(?P<literal>.)|\$(?P<digits>[0-9]*)", re.DOTALL)

logger = logging.getLogger(__name__)


# -- subjects -------------------------------------------------------------------------------------------------


def subject_name(subject: "x509.Name") -> str:
    """The subject as `CN=duke,OU=Users,O=Org\\, Inc.,C=US`."""
    return ",".join("+".join(_attribute(each) for each in rdn) for rdn in reversed(subject.rdns))


def _attribute(attribute: "x509.NameAttribute[str | bytes]") -> str:
    keyword = _KEYWORDS.get(attribute.oid.dotted_string)
    encoded = _encoded_value(attribute)
    if keyword is None or encoded[0] not in _TEXTS:
        return f"{keyword or attribute.oid.dotted_string}=#{encoded.hex()}"
    return f"{keyword}={_escaped(_contents(encoded).decode(_TEXTS[encoded[0]]))}"


def _escaped(value: str) -> str:
    """Java escapes more than RFC 2253 demands: `=` and `#` everywhere, and all spaces at both ends."""
    text = _ESCAPED.sub(r"\\\g<0>", value.strip(" ")).replace("\0", r"\00")
    leading = len(value) - len(value.lstrip(" "))
    trailing = len(value) - leading - len(value.strip(" "))
    return "\\ " * leading + text + "\\ " * trailing


def _encoded_value(attribute: "x509.NameAttribute[str | bytes]") -> bytes:
    """The DER of a value: `Name` is SEQUENCE of SET of SEQUENCE of a type and a value."""
    from cryptography import x509

    data = x509.Name([attribute]).public_bytes()
    pair = _contents(_contents(_contents(data)))
    return pair[2 + pair[1] :]  # after the type, whose length is one byte


def _contents(data: bytes) -> bytes:
    """The contents of one DER value."""
    length_bytes = data[1] & 0x7F if data[1] & 0x80 else 0
    return data[2 + length_bytes :]


# -- rules ----------------------------------------------------------------------------------------------------


class MappingRule(NamedTuple):
    """`RULE:pattern/replacement/[LU]`; without a pattern, `DEFAULT`."""

    pattern: re.Pattern[str] | None = None
    replacement: Sequence[str | int] = ()
    """Texts and numbers of groups."""
    case: str = ""

    def apply(self, subject: str) -> str | None:
        """The name that the rule makes of a subject, None if it does not match the whole of it. As in Kafka, every
        occurrence of the pattern is replaced then: write `^` and `$`."""
        if self.pattern is None:
            return subject
        if self.pattern.fullmatch(subject) is None:
            return None
        name = self.pattern.sub(self._replaced, subject)
        return {"L": name.lower(), "U": name.upper()}.get(self.case, name)

    def _replaced(self, found: re.Match[str]) -> str:
        return "".join(part if isinstance(part, str) else found[part] or "" for part in self.replacement)


class PrincipalMapping:
    """The rules, in their order: the first one that matches makes the name."""

    def __init__(self, rules: str) -> None:
        """Raises ValueError if the rules cannot be parsed."""
        self._rules = list(parse_rules(rules))

    def name(self, subject: str) -> str:
        """Raises `AuthenticationFailed` if no rule matches."""
        for rule in self._rules:
            if (name := rule.apply(subject)) is not None:
                return name
        logger.debug("certificate refused", extra={"reason": "no mapping rule matches its subject"})
        raise AuthenticationFailed


def parse_rules(text: str) -> Iterable[MappingRule]:
    """Rules have commas between them, and may have commas in them. Empty ones are ignored."""
    end = 0
    while end < len(text):
        found = _RULE.match(text, end)
        if found is None:
            raise ValueError(f"{text[end:]!r} does not start with DEFAULT or RULE:pattern/replacement/[LU]")
        if found[1]:
            yield MappingRule()
        elif found[2] is not None:
            yield _rule(*found.group(2, 3, 4))
        end = found.end()


def _rule(pattern: str, replacement: str, case: str) -> MappingRule:
    try:
        compiled = re.compile(pattern, re.ASCII)
    except re.error as error:
        raise ValueError(f"the pattern {pattern!r} of a rule is not valid: {error}") from None
    return MappingRule(compiled, list(_parts(replacement, compiled.groups)), case)


def _parts(replacement: str, groups: int) -> Iterable[str | int]:
    """`$12` is group 12 or, if there are fewer, group 1 and a `2`. Kafka takes a `$3` without a third group for a text;
    here it is an error, because every certificate could get the same name."""
    end = 0
    for found in _REFERENCE.finditer(replacement):
        yield replacement[end : found.start()]
        end = found.end()
        yield from [found["literal"]] if found["literal"] else _group(found["digits"], groups)
    yield replacement[end:]


def _group(digits: str, groups: int) -> Iterable[str | int]:
    length = len(digits)
    while length > 1 and int(digits[:length]) > groups:
        length -= 1
    if not digits or int(digits[:length]) > groups:
        raise ValueError(f"the pattern of a rule has no group ${digits}; write `\\$` for a dollar sign")
    return [int(digits[:length]), digits[length:]]
