"""The secured lab's issuer of tokens as a process: ``token_issuer.py`` with the lab's passwords as secrets."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import httpx

from airflow_eos_provider.lab.servers.part import Part
from tests.lab.security import Security

_ANSWER_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Issuer(Part):
    """The issuer in a lab's folder; each principal of its security gets tokens for its password."""

    folder: Path
    security: Security
    port: int
    marker: str

    @property
    def name(self) -> str:
        return "issuer"

    @property
    def address(self) -> str:
        return self.security.issuer_url(self.port)

    @property
    def start_command(self) -> list[str]:
        mark = f"--{self.marker.removeprefix('-D')}"
        module = "tests.lab.token_issuer"
        return [sys.executable, "-m", module, mark, str(self.security.passwords_file), str(self.port)]

    def answers(self) -> bool:
        """Whether it shows its public key now."""
        try:
            return httpx.get(f"{self.address}/keys", timeout=_ANSWER_SECONDS, trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False
