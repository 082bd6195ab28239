"""From an empty description to the rights of a roll, on a real machine: ``eos discover --ssh``, ``eos hosts``."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from airflow_eos_provider.cli.app import app
from airflow_eos_provider.lab.lab import Lab
from tests.lab.machine_login import MachineLogin

SUDOERS = "/etc/sudoers.d/eos"


@pytest.fixture(scope="module")
def lab(lab_factory: Callable[..., Lab]) -> Iterator[Lab]:
    """One machine, whose login has no rights beyond its own."""
    lab = lab_factory(name="hosts", workers=1, machines=1)
    allow(lab, "")
    yield lab
    lab.down()


def allow(lab: Lab, sudoers: str) -> None:
    """Replace what sudo allows the login, after visudo has read it."""
    (machine,) = lab.machines
    words = [
        "sh",
        "-c",
        'cat >"$1.new" && visudo -c -q -f "$1.new" && chmod 440 "$1.new" && mv "$1.new" "$1"',
        "sh",
        SUDOERS,
    ]
    machine.run(words, stdin=sudoers.encode())


def eos(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


@pytest.fixture(scope="module")
def described(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cluster file that ``eos discover --ssh`` proposes to a login without rights."""
    file = tmp_path_factory.mktemp("discovered") / "eos.yaml"
    config = str(MachineLogin(lab.root).config)
    ended = eos(
        *("discover", "-g", lab.group_id, "-b", lab.bootstrap_servers),
        *("--ssh", "--ssh-config", config, "--write", str(file)),
    )
    assert ended.exit_code == 0, ended.output
    return file


def checks(file: Path) -> tuple[int, dict[str, dict[str, str]]]:
    """The exit code of ``eos hosts check``, and its answers by name."""
    ended = eos("hosts", "check", "--cluster", str(file), "--json")
    (worker,) = json.loads(ended.stdout)["workers"]
    return ended.exit_code, {check["subject"]: check for check in worker["checks"]}


def printed(file: Path) -> str:
    """What ``eos hosts sudoers`` prints."""
    return eos("hosts", "sudoers", "--cluster", str(file)).stdout


def test_what_is_discovered_is_what_the_lab_describes(lab: Lab, described: Path) -> None:
    (proposed,) = yaml.safe_load(described.read_text())["workers"]
    (own,) = yaml.safe_load(lab.cluster_file.read_text())["workers"]
    unit = own["service"]["systemd"].removesuffix(".service")
    assert proposed == {**own, "service": {"systemd": unit}}


def test_a_login_without_rights_is_given_the_missing_lines_and_with_them_all_passes(lab: Lab, described: Path) -> None:
    code, before = checks(described)
    assert code == 1
    assert (before["file"]["verdict"], before["sudo"]["verdict"]) == ("fail", "fail")
    sudoers = printed(described)
    missing = before["sudo"]["remedy"].splitlines()[1:]
    assert missing
    assert set(missing) <= set(sudoers.splitlines())

    allow(lab, sudoers)
    code, after = checks(described)
    assert {name: check["verdict"] for name, check in after.items()} == dict.fromkeys(after, "pass")
    assert code == 0
    assert "disabled" in after["log"]["found"]
    assert "Restart=always" in after["unit"]["found"]


@pytest.mark.parametrize(
    "words",
    [
        "cat /etc/shadow",
        "-u kafka cat -- /etc/kafka/connect-1.properties /etc/shadow",
        "systemctl restart --no-block ssh.service",
        "systemctl stop kafka-connect@1.service",
        "-u kafka dd of=/etc/kafka/other conv=nocreat,fsync oflag=nofollow status=none",
        "journalctl --no-pager -u ssh.service",
        "sh -c id",
    ],
)
def test_the_printed_lines_allow_nothing_else(lab: Lab, described: Path, words: str) -> None:
    allow(lab, printed(described))
    ssh = ["ssh", "-F", str(MachineLogin(lab.root).config), "-o", "BatchMode=yes", "connect-1"]
    refused = subprocess.run([*ssh, f"sudo -n {words}"], capture_output=True, text=True, timeout=180)
    assert refused.returncode != 0
    assert "password is required" in refused.stderr


def test_without_one_line_the_check_names_that_line(lab: Lab, described: Path) -> None:
    whole = printed(described)
    (line,) = [each for each in whole.splitlines() if each.endswith("restart --no-block kafka-connect@1.service")]
    allow(lab, whole.replace(line, ""))
    code, answers = checks(described)
    allow(lab, whole)
    assert code == 1
    assert answers["service"]["verdict"] == "fail"
    assert answers["sudo"]["remedy"].splitlines()[1:] == [line]


def change_unit(lab: Lab, line: str) -> None:
    """Add a line to the section [Service] of the unit's own file."""
    (machine,) = lab.machines
    path = machine.output(["systemctl", "show", "-P", "FragmentPath", "kafka-connect@1.service"])
    machine.run(["sed", "-i", f"s/^\\[Service\\]$/&\\n{line}/", path])


def test_a_unit_whose_files_were_changed_since_is_named_and_so_is_one_that_is_not_there(
    lab: Lab, described: Path, tmp_path: Path
) -> None:
    allow(lab, printed(described))
    change_unit(lab, "TimeoutStartSec=33")
    code, answers = checks(described)
    assert (code, answers["unit"]["verdict"], answers["unit"]["remedy"]) == (1, "fail", "systemctl daemon-reload")
    lab.machines[0].run(["systemctl", "daemon-reload"])
    assert checks(described)[1]["unit"]["verdict"] == "pass"

    document: dict[str, Any] = yaml.safe_load(described.read_text())
    document["workers"][0]["service"]["systemd"] = "kafka-connect@7x"
    other = tmp_path / "eos.yaml"
    other.write_text(yaml.safe_dump(document))
    assert checks(other)[1]["service"]["verdict"] == "fail"


def test_a_machine_that_is_off_is_not_reached_and_its_lines_are_assumed(lab: Lab, described: Path) -> None:
    seen = {line for line in printed(described).splitlines() if not line.startswith("#")}
    lab.machines[0].power_off()
    ended = eos("hosts", "check", "--cluster", str(described))
    assert ended.exit_code == 5
    assumed = printed(described)
    assert "# assumed: " in assumed
    lines = {line.partition(" ")[2] for line in assumed.splitlines() if not line.startswith("#")}
    assert lines == {line.partition(" ")[2] for line in seen}
