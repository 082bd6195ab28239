"""Free ports: where they are looked for, and who has one that is taken."""

from __future__ import annotations

import os
import socket

import pytest

from airflow_eos_provider.errors import EosError
from airflow_eos_provider.lab.ports import PORTS_VARIABLE, free_ports, require_free


def test_a_port_is_given_away_once_and_from_the_range_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    (used,) = free_ports(1)
    monkeypatch.setenv(PORTS_VARIABLE, f"{used}-{used}")
    with pytest.raises(EosError, match=f"Only 0 free ports were found in {used}-{used}"):
        free_ports(1)


def test_whoever_has_a_port_is_named() -> None:
    (port,) = free_ports(1)
    require_free(port, "w1")
    with (
        socket.create_server(("127.0.0.1", port)),
        pytest.raises(EosError, match=rf"taken by pid {os.getpid()} \(LISTEN\)"),
    ):
        require_free(port, "w1")
