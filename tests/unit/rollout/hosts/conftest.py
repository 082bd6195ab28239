"""One sshd for a module, and time for commands.

Commands get the time here that a machine that stalls takes; the product's limit is for a person who waits.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from airflow_eos_provider.rollout.hosts.machine.ssh.ssh_machine import SshMachine
from airflow_eos_provider.rollout.hosts.machine.sudo import Sudo
from airflow_eos_provider.rollout.hosts.machine.this_machine import ThisMachine
from tests.sshd import Sshd, running_sshd


@pytest.fixture(scope="module", autouse=True)
def commands_have_time() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for run in (ThisMachine.run, SshMachine.run, Sudo.run):
            patch.setitem(run.__kwdefaults__, "seconds", 120.0)  # type: ignore[attr-defined]
        yield


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with running_sshd(tmp_path_factory.mktemp("sshd")) as sshd:
        yield sshd
