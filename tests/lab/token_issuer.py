"""A small issuer of tokens for the lab: client credentials (RFC 6749 §4.4) against signed JSON web tokens (RFC 7519).

It knows its clients by name and secret, signs by RS256 with a key of its own, and shows the public half where brokers
look for it (RFC 7517). It listens on the loopback interface, and ends with the block that it was entered by.

    python -m tests.lab.token_issuer PASSWORDS PORT

is that as a process, for the users in a file of a secured lab.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import hmac
import json
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qsl

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.http_server import Reply, http_server


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
        self._server: AbstractContextManager[Any] = http_server(self._reply, port=port)

    def __enter__(self) -> Self:
        self._port = self._server.__enter__().server_port
        return self

    def __exit__(self, *error: Any) -> None:
        self._server.__exit__(*error)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def token_endpoint(self) -> str:
        return f"{self.url}/token"

    @property
    def keys_endpoint(self) -> str:
        return f"{self.url}/keys"

    def keys(self) -> dict[str, Any]:
        """The public key, as brokers read it."""
        key = jwt.algorithms.RSAAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        numbers = {name: key[name] for name in ("kty", "n", "e")}
        return {"keys": [{**numbers, "use": "sig", "alg": "RS256", "kid": self._key_id}]}

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
        return jwt.encode(claims, self._key, algorithm="RS256", headers={"kid": self._key_id})

    def _reply(self, asked: BaseHTTPRequestHandler, body: bytes) -> Reply:
        status, document = 200, self.keys()
        if asked.command == "POST":
            status, document = self._granted(asked, dict(parse_qsl(body.decode())))
        return status, json.dumps(document).encode(), {"Content-Type": "application/json"}

    def _granted(self, asked: BaseHTTPRequestHandler, form: Mapping[str, str]) -> tuple[int, dict[str, Any]]:
        if self.refuses:
            return 503, {}
        if form.get("grant_type") != "client_credentials":
            return 400, {"error": "unsupported_grant_type"}
        granted = self.grant(*_basic(asked.headers.get("Authorization", "")), form.get("scope", ""))
        if granted is None:
            return 401, {"error": "invalid_client", "error_description": "Unknown client or wrong secret"}
        return 200, granted


def main(arguments: Sequence[str] | None = None) -> None:
    """Issue tokens until the process ends."""
    parser = argparse.ArgumentParser(description="Issue tokens to the users of a secured lab.")
    parser.add_argument("passwords", type=Path, help="JSON document: password by user")
    parser.add_argument("port", type=int)
    given, _ = parser.parse_known_args(arguments)  # what marks the lab's processes is no concern here
    with TokenIssuer(json.loads(given.passwords.read_text(encoding="utf-8")), port=given.port):
        threading.Event().wait()


def _basic(header: str) -> tuple[str, str]:
    with contextlib.suppress(ValueError):
        name, _, secret = base64.b64decode(header.partition(" ")[2]).decode().partition(":")
        return name, secret
    return "", ""


if __name__ == "__main__":
    main()
