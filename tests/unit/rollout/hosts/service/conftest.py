"""One sshd for all tests of services, and where acts on this machine leave their records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sshd import Sshd, running_sshd


@pytest.fixture(scope="module")
def far_state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The far login's ``XDG_STATE_HOME``."""
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory, far_state: Path) -> Iterator[Sshd]:
    with running_sshd(
        tmp_path_factory.mktemp("sshd"), options={"SetEnv": f"XDG_STATE_HOME={far_state}", "MaxStartups": "100"}
    ) as sshd:
        yield sshd
