"""A small issuer of tokens for the lab: client credentials (RFC 6749 §4.4) against signed JSON web tokens (RFC 7519).

It knows its clients by name and secret, signs by RS256 with a key of its own, and shows the public half where brokers
look for it (RFC 7517). It listens on the loopback interface, and ends with the block that it was entered by.

    python -m tests.lab.token_issuer PASSWORDS PORT

is that as a process, for the users in a file of a secured lab.
"""

from __future__ import annotations

import argparse
import base64
import binascii
import contextlib
import hmac
import json
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa


class TokenIssuer:
    """The issuer; a context manager.

    :ivar granted: how many tokens each client has got.
    :ivar refuses: answers 503 while it is set, as an issuer does that is away.
    """

    def __init__(self, clients: Mapping[str, str], life_seconds: float = 300.0, port: int = 0) -> None:
        self.clients = dict(clients)
        self.life_seconds = life_seconds
        self.refuses = False
        self.granted: dict[str, int] = dict.fromkeys(clients, 0)
        self._lock = threading.Lock()
        self._key_id = secrets.token_hex(4)  # of a new key: brokers keep what they have read of a known one
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._server = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, name="token issuer", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def token_endpoint(self) -> str:
        return f"{self.url}/token"

    @property
    def keys_endpoint(self) -> str:
        return f"{self.url}/keys"

    def keys(self) -> dict[str, Any]:
        """The public key, as brokers read it."""
        numbers = self._key.public_key().public_numbers()
        key = {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": self._key_id}
        return {"keys": [{**key, "n": _number(numbers.n), "e": _number(numbers.e)}]}

    def grant(self, client_id: str, secret: str, scope: str = "") -> dict[str, Any] | None:
        """A token for a client, as the endpoint answers; None if it is not known, or has another secret."""
        expected = self.clients.get(client_id)
        if expected is None or not hmac.compare_digest(expected.encode(), secret.encode()):
            return None
        with self._lock:
            self.granted[client_id] = self.granted.get(client_id, 0) + 1
        return {
            "access_token": self.token(client_id, scope),
            "token_type": "Bearer",
            "expires_in": int(self.life_seconds),
        }

    def token(self, subject: str, scope: str = "", life_seconds: float | None = None) -> str:
        """A signed token.

        :param life_seconds: None for the issuer's; below zero for one that has expired.
        """
        now, life = time.time(), self.life_seconds if life_seconds is None else life_seconds
        claims: dict[str, Any] = {"iss": self.url, "sub": subject, "aud": "kafka"}
        claims |= {"iat": int(min(now, now + life - 1)), "exp": int(now + life), "scope": scope or "kafka"}
        signed = f"{_json({'alg': 'RS256', 'typ': 'JWT', 'kid': self._key_id})}.{_json(claims)}"
        signature = self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{_base64(signature)}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Issue tokens until the process ends."""
    parser = argparse.ArgumentParser(description="Issue tokens to the users of a secured lab.")
    parser.add_argument("passwords", type=Path, help="JSON document: password by user")
    parser.add_argument("port", type=int)
    given, _ = parser.parse_known_args(arguments)  # what marks the lab's processes is no concern here
    with TokenIssuer(json.loads(given.passwords.read_text(encoding="utf-8")), port=given.port):
        threading.Event().wait()


def _handler(issuer: TokenIssuer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(200, issuer.keys())

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            form = {name: values[0] for name, values in parse_qs(body).items()}
            client_id, secret = _basic(self.headers.get("Authorization", ""))
            if issuer.refuses:
                self._answer(503, {})
            elif form.get("grant_type") != "client_credentials":
                self._answer(400, {"error": "unsupported_grant_type"})
            elif (granted := issuer.grant(client_id, secret, form.get("scope", ""))) is not None:
                self._answer(200, granted)
            else:
                self._answer(401, {"error": "invalid_client", "error_description": "Unknown client or wrong secret"})

        def _answer(self, status: int, document: Mapping[str, Any]) -> None:
            content = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Who asks is no news."""

    return Handler


def _basic(header: str) -> tuple[str, str]:
    with contextlib.suppress(binascii.Error, UnicodeDecodeError):
        name, _, secret = base64.b64decode(header.partition(" ")[2]).decode().partition(":")
        return name, secret
    return "", ""


def _json(document: Mapping[str, Any]) -> str:
    return _base64(json.dumps(document).encode())


def _number(value: int) -> str:
    return _base64(value.to_bytes((value.bit_length() + 7) // 8, "big"))


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


if __name__ == "__main__":
    main()
