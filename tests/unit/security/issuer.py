"""An issuer of JWTs for tests: keys of every kind, the JWK set, and tokens that are wrong in one respect."""

import json
from base64 import urlsafe_b64encode
from functools import cache

from cryptography.hazmat.primitives import hashes, hmac
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from tests.unit.security.proofs import NOW_MS

ISSUER, AUDIENCE = "https://issuer.example", "millpond"
NOW_S = NOW_MS // 1000
CLAIMS = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "exp": NOW_S + 600}
KEY_TYPES = {"RS256": "rsa", "PS256": "rsa", "ES256": "ec", "EdDSA": "ed", "Ed25519": "ed"}


def encoded(data):
    data = data if isinstance(data, bytes) else json.dumps(data).encode()
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def number(value, size=None):
    return encoded(value.to_bytes(size or (value.bit_length() + 7) // 8))


@cache
def key(name):
    """The private key of this name; its name says its type."""
    if name.startswith("rsa"):
        return rsa.generate_private_key(65537, 1024 if "small" in name else 2048)
    if name.startswith("ec"):
        return ec.generate_private_key(ec.SECP384R1() if "384" in name else ec.SECP256R1())
    return ed25519.Ed25519PrivateKey.generate()


def jwk(name, **members):
    """The public key of this name as a member of a JWK set."""
    public = key(name).public_key()
    if name.startswith("rsa"):
        numbers = public.public_numbers()
        parts = {"kty": "RSA", "n": number(numbers.n), "e": number(numbers.e)}
    elif name.startswith("ec"):
        numbers, size = public.public_numbers(), public.key_size // 8
        parts = {
            "kty": "EC",
            "crv": f"P-{public.key_size}",
            "x": number(numbers.x, size),
            "y": number(numbers.y, size),
        }
    else:
        parts = {"kty": "OKP", "crv": "Ed25519", "x": encoded(public.public_bytes_raw())}
    return {"kid": name, **parts, **members}


def jwks(*members):
    return json.dumps({"keys": members or [jwk("rsa"), jwk("ec"), jwk("ed")]}).encode()


def signed(algorithm, name, data):
    private = key(name)
    if algorithm == "RS256":
        return private.sign(data, padding.PKCS1v15(), hashes.SHA256())
    if algorithm == "RS512":
        return private.sign(data, padding.PKCS1v15(), hashes.SHA512())
    if algorithm == "PS256":
        return private.sign(data, padding.PSS(padding.MGF1(hashes.SHA256()), 32), hashes.SHA256())
    if algorithm.startswith("ES"):
        size = private.key_size // 8
        hashed = hashes.SHA384() if algorithm == "ES384" else hashes.SHA256()
        r, s = decode_dss_signature(private.sign(data, ec.ECDSA(hashed)))
        return r.to_bytes(size) + s.to_bytes(size)
    return private.sign(data)


def token(algorithm="RS256", *, name=None, claims=CLAIMS, header=None, **changes):
    """A token, signed by the key that `name` says; `header` and `changes` replace members of header and claims. A
    change to `...` removes the claim."""
    name = name or KEY_TYPES[algorithm]
    header = {"alg": algorithm, "kid": name, "typ": "JWT"} | (header or {})
    if isinstance(claims, dict):
        claims = {key: value for key, value in (claims | changes).items() if value is not ...}
    data = f"{encoded(header)}.{encoded(claims)}"
    return f"{data}.{encoded(signed(algorithm, name, data.encode()))}"


def hmac_token(secret, **header):
    """A token of HS256, whose "secret" is what everyone knows: a public key."""
    data = f"{encoded({'alg': 'HS256', 'kid': 'rsa'} | header)}.{encoded(CLAIMS)}"
    mac = hmac.HMAC(secret, hashes.SHA256())
    mac.update(data.encode())
    return f"{data}.{encoded(mac.finalize())}"
