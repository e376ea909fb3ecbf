"""An OpenID provider on loopback: discovery, keys, authorization and token endpoints, PKCE, codes that work once."""

import hashlib
import http.server
import json
import ssl
import threading
import time
from base64 import b64decode
from contextlib import contextmanager
from urllib.parse import parse_qs, unquote_plus, urlencode, urlsplit

from tests.unit.security.issuer import encoded, jwks, token

CLIENT_ID, CLIENT_SECRET = "millpond-console", "s3cret: of the client"


class IdentityProvider:
    """Logs every user in as alice. `claims` replace claims of the ID token, `description` members of the discovery
    document, `verifier` the verifier that it expects, and `status` is that of the token endpoint."""

    def __init__(self, issuer):
        self.issuer = issuer
        self.claims = {}
        self.description = {}
        self.status = 200
        self.signing = {}
        self.requests = []
        self.codes = {}

    def discovery(self):
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize?tenant=1",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
        } | self.description

    def authorize(self, url, **changes):
        """What the login page of the provider does: returns the URL to which it sends the browser back. `changes`
        replace parameters of the request."""
        query = {name: value[0] for name, value in parse_qs(urlsplit(url).query).items()} | changes
        assert url.startswith(f"{self.issuer}/authorize?tenant=1&")
        assert (query["response_type"], query["client_id"]) == ("code", CLIENT_ID)
        assert query["code_challenge_method"] == "S256"
        code = f"code{len(self.codes)}"
        self.codes[code] = query
        back = {"code": code, "state": query["state"], "iss": self.issuer, "session_state": "x"}
        return f"{query['redirect_uri']}?{urlencode(back)}"

    def exchange(self, form, authorization):
        in_form = [form.get("client_id"), form.get("client_secret")]
        in_header = [unquote_plus(each) for each in b64decode(authorization[6:]).decode().split(":")]
        if [CLIENT_ID, CLIENT_SECRET] not in (in_form, in_header):
            return 401, {"error": "invalid_client"}
        asked = self.codes.pop(form["code"], None)  # a code can be used once
        challenge = encoded(hashlib.sha256(form["code_verifier"].encode()).digest())
        if asked is None or asked["redirect_uri"] != form["redirect_uri"]:
            return 400, {"error": "invalid_grant"}
        if asked["code_challenge"] != challenge:
            return 400, {"error": "invalid_grant", "error_description": "PKCE"}
        claims = {
            "iss": self.issuer,
            "aud": CLIENT_ID,
            "sub": "alice",
            "exp": int(time.time()) + 300,
            "nonce": asked["nonce"],
        }
        made = token(**({"algorithm": "ES256"} | self.signing), claims=claims, **self.claims)
        return self.status, {"id_token": made, "access_token": "unused", "token_type": "Bearer"}

    def respond(self, method, path, body, authorization):
        self.requests.append((method, path))
        if path == "/.well-known/openid-configuration":
            return 200, self.discovery()
        if path == "/keys":
            return 200, json.loads(jwks())
        if (method, path) == ("POST", "/token"):
            return self.exchange({name: value[0] for name, value in parse_qs(body).items()}, authorization)
        return 404, {}


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
        status, content = self.server.provider.respond(
            self.command, self.path, body, self.headers.get("authorization", "")
        )
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_POST = do_GET  # noqa: N815  # the name that http.server calls

    def log_message(self, *args):
        pass


@contextmanager
def running_provider(pki):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki.certificate, pki.key)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.provider = IdentityProvider(f"https://localhost:{server.server_port}")
        server.socket = context.wrap_socket(server.socket, server_side=True)
        server.handle_error = lambda *_: None
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.provider
        finally:
            server.shutdown()
            thread.join()
