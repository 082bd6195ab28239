"""What the login of a lab's machines may do there as another user: the lines of ``eos hosts sudoers``, no others."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_eos_provider.connect.cluster.description import WorkerDescription
from airflow_eos_provider.errors import EosError
from airflow_eos_provider.lab.machine import Machine
from airflow_eos_provider.rollout.hosts.sudoers import sudoers_of

#: The machine's own file for the login. sudo leaves out a file with a dot in its name.
SUDOERS_FILE = "/etc/sudoers.d/eos"

_PUT = 'umask 0337; cat >"$1.new"; visudo -q -c -f "$1.new"; mv "$1.new" "$1"'


def grant(workers: Mapping[str, WorkerDescription], machines: Mapping[str, Machine]) -> None:
    """Grant the login on each machine what a roll of the worker there needs.

    The machines are looked at over SSH, as ``eos hosts sudoers`` does.

    :param workers: by the names of their machines.
    :param machines: which are on, by their names.
    :raises EosError: a machine is not looked at, or its sudo does not take the lines.
    """
    for file in sudoers_of(list(workers.values())):
        if file.remarks or not file.sections:
            raise EosError(f"There are no sudoers lines for {file.machine}: {'; '.join(file.remarks)}")
        machines[file.machine].run(["sh", "-euc", _PUT, "sh", SUDOERS_FILE], stdin=file.text().encode())
