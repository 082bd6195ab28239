"""What systemctl prints is read as systemd means it. The texts are real ones, of systemd 252, shortened."""

from __future__ import annotations

from base64 import b64encode

import pytest

from airflow_eos_provider.rollout.hosts.service.unit import (
    Unit,
    UnitFile,
    assignments,
    environment_file,
    files_of,
    may_write,
    seconds_of,
)

RUNNING = """\
Type=simple
Restart=always
RestartUSec=1s
TimeoutStartUSec=1min 30s
TimeoutStopUSec=20s
MainPID=289
Result=success
NRestarts=0
ExecMainStartTimestampMonotonic=4063077000
ExecStart={ path=/usr/bin/python3 ; argv[]=/usr/bin/python3 /opt/w/worker.py /etc/kafka/c.properties 18081 ; \
ignore_errors=no ; start_time=[Mon 2026-11-23 22:39:27 UTC] ; stop_time=[n/a] ; pid=289 ; code=(null) ; status=0/0 }
Environment=A=1 "B=two words" PASSWORD=hunter22 C=3
EnvironmentFiles=/etc/kafka/worker.env (ignore_errors=yes)
EnvironmentFiles=/etc/kafka/worker-1.env (ignore_errors=no)
Id=w@1.service
LoadState=loaded
ActiveState=active
SubState=running
FragmentPath=/etc/systemd/system/w@.service
DropInPaths=/etc/systemd/system/w@1.service.d/x.conf /etc/systemd/system/w@1.service.d/y.conf
NeedDaemonReload=no
Job=
InvocationID=109dc3b4a4c5408fb8820fbe62d3eb3c
"""

LIMIT = """\
Restart=always
RestartUSec=100ms
Result=exit-code
NRestarts=3
ExecMainExitTimestampMonotonic=4646261508
StateChangeTimestampMonotonic=4646501511
ActiveState=failed
SubState=failed
InvocationID=aec1e14726884c5e8171d5a57d42216a
"""

WAITING = "Restart=always\nActiveState=activating\nSubState=auto-restart\nResult=signal\nMainPID=0\nNRestarts=0\n"
STOPPING = "ActiveState=deactivating\nSubState=stop-sigterm\nMainPID=221\nJob=861\n"
MISSING = """\
Id=nosuch.service
LoadState=not-found
LoadError=org.freedesktop.systemd1.NoSuchUnit "Unit nosuch.service not found."
"""


def test_a_running_unit_tells_its_process_and_its_limits() -> None:
    unit = Unit.parse(RUNNING)
    assert (unit.name, unit.main_pid, unit.is_stopped, unit.job) == ("w@1.service", 289, False, "")
    assert unit.invocation == "109dc3b4a4c5408fb8820fbe62d3eb3c"
    assert unit.commands == (("/usr/bin/python3", "/opt/w/worker.py", "/etc/kafka/c.properties", "18081"),)
    assert (unit.stop_seconds, unit.start_seconds, unit.restart_pause_seconds) == (20.0, 90.0, 1.0)
    assert unit.main_started_at_boottime == 4063.077
    assert unit.state == "active (running)"
    assert not unit.has_hit_start_limit


def test_what_a_unit_executes_has_neither_moments_nor_pids_nor_variables_in_it() -> None:
    again = RUNNING.replace("pid=289", "pid=300").replace("22:39:27", "22:40:00").replace("hunter22", "other")
    assert Unit.parse(again).executes == Unit.parse(RUNNING).executes
    assert Unit.parse(RUNNING.replace("18081", "18082")).executes != Unit.parse(RUNNING).executes


def test_variables_are_those_of_the_unit_overridden_by_its_files_in_order_each_with_what_sets_it() -> None:
    files = (
        UnitFile("/etc/systemd/system/w@.service", b"[Service]\nEnvironment=A=1 C=2\n", 5.0),
        UnitFile("/etc/systemd/system/w@1.service.d/x.conf", b"[Service]\nEnvironment=\\\n  C=3\n", 6.0),
        UnitFile("/etc/kafka/worker.env", b'# comment\nMODE=disabled\nQUOTED="a b"\nA=from file\n', 7.0),
        UnitFile("/etc/kafka/worker-1.env", None, 8.0),
    )
    unit = Unit.parse(RUNNING, files)
    variables = unit.variables()
    assert variables["B"] == ("two words", "/etc/systemd/system/w@.service")
    assert variables["C"] == ("3", "/etc/systemd/system/w@1.service.d/x.conf")
    assert variables["MODE"] == ("disabled", "/etc/kafka/worker.env")
    assert variables["QUOTED"] == ("a b", "/etc/kafka/worker.env")
    assert variables["A"] == ("from file", "/etc/kafka/worker.env")
    assert unit.unread_files == ("/etc/kafka/worker-1.env",)
    assert unit.variables_changed_at == 8.0


def test_a_unit_that_systemd_gives_up_has_hit_its_start_limit_though_its_result_is_that_of_its_last_end() -> None:
    unit = Unit.parse(LIMIT)
    assert unit.has_hit_start_limit
    assert unit.state == "failed (start limit after 3 restarts)"
    assert Unit.parse("ActiveState=failed\nResult=start-limit-hit\n").has_hit_start_limit


@pytest.mark.parametrize(
    "change",
    [
        ("Restart=always", "Restart=no"),
        ("NRestarts=3", "NRestarts=0"),
        ("StateChangeTimestampMonotonic=4646501511", "StateChangeTimestampMonotonic=4646262508"),  # stopped: at once
        ("ActiveState=failed", "ActiveState=inactive"),
    ],
)
def test_a_unit_that_ended_otherwise_has_not(change: tuple[str, str]) -> None:
    assert change[0] in LIMIT
    assert not Unit.parse(LIMIT.replace(*change)).has_hit_start_limit


def test_a_unit_between_two_starts_is_stopped_and_one_that_stops_is_not() -> None:
    assert Unit.parse(WAITING).is_stopped
    assert Unit.parse(WAITING).is_between_starts
    stopping = Unit.parse(STOPPING)
    assert (stopping.is_stopped, stopping.job, stopping.main_pid) == (False, "861", 221)


def test_a_unit_that_is_not_there_says_why() -> None:
    unit = Unit.parse(MISSING)
    assert (unit.load_state, unit.is_loaded, unit.load_error) == ("not-found", False, "Unit nosuch.service not found.")


def test_what_an_older_systemd_does_not_print_is_empty() -> None:
    unit = Unit.parse("Id=w.service\nLoadState=loaded\nActiveState=active\n")
    assert (unit.restarts, unit.invocation, unit.commands, unit.stop_seconds) == (0, "", (), 90.0)


@pytest.mark.parametrize(
    ("span", "seconds"),
    [("1min 30s", 90.0), ("infinity", None), ("100ms", 0.1), ("2h 5min", 7500.0), ("", 90.0), ("500us", 0.0005)],
)
def test_spans_of_time(span: str, seconds: float | None) -> None:
    assert seconds_of(span) == seconds


def test_assignments_and_files_of_variables() -> None:
    assert assignments('A=1 "B=two words" noise') == {"A": "1", "B": "two words"}
    assert assignments("A='broken") == {"A": "'broken"}
    text = "; comment\n#\nA=1\n B = 'x y' \nlong=a\\\nb\nno equals\n1X=2\n"
    assert dict(environment_file(text)) == {"A": "1", "B": "x y", "long": "ab"}


def test_files_come_in_base64_and_one_that_may_not_be_read_as_none() -> None:
    content = b64encode(b"MODE=disabled\n")
    parts = {"file /a": b"10 12\n" + content + b"\n", "file /b": b"10 11\n-\n", "file /c": b"\n-\n", "show": b"x"}
    assert files_of(parts) == (
        UnitFile("/a", b"MODE=disabled\n", 12.0),
        UnitFile("/b", None, 11.0),
        UnitFile("/c", None, None),
    )


def test_nothing_of_a_unit_is_shown_by_chance() -> None:
    unit = Unit.parse(RUNNING, (UnitFile("/etc/kafka/worker.env", b"PASSWORD=hunter22"),))
    assert "hunter22" not in repr(unit)


FILE = "/etc/kafka/connect.properties"


@pytest.mark.parametrize(
    ("command", "writes"),
    [
        (f"/usr/local/bin/render --output {FILE}", True),
        (f"/usr/bin/install -p /srv/connect.properties {FILE}", True),
        (f"/bin/sh -c envsubst < /srv/t > {FILE}", True),
        (f"/bin/sh -ec test -r {FILE} && cat /srv/t >{FILE}", True),
        (f"grep -q x {FILE} || cp /srv/t {FILE}", True),
        ("/usr/bin/rsync -a /srv/config/ /etc/kafka/", True),
        ("OUT=connect.properties", True),
        (f"/bin/sh -c if grep -q =preparing {FILE}; then echo no; exit 1; fi", False),
        (f"[ -f {FILE} ] || exit 1", False),
        (f"/bin/chown kafka {FILE}", False),
        ("/usr/bin/mkdir -p /etc/kafka", False),
        (f"# writes {FILE}", False),
        ("/usr/local/bin/render --output /etc/kafka/other.properties", False),
        ("", False),
    ],
)
def test_a_command_that_names_the_workers_file_other_than_to_read_it_may_write_it(command: str, writes: bool) -> None:
    assert may_write(command, FILE) is writes


def test_commands_before_a_start_are_read_with_the_units_variables() -> None:
    shown = f"""{RUNNING}ExecStartPre={{ path=/bin/cp ; argv[]=/bin/cp /srv/t ${{TO}} ; ignore_errors=no }}
ExecStartPre={{ path=/bin/true ; argv[]=/bin/true ; ignore_errors=no }}
""".replace("Environment=A=1", f"Environment=TO={FILE}")
    unit = Unit.parse(shown)
    assert unit.before_start == (f"/bin/cp /srv/t {FILE}", "/bin/true")
    assert Unit.parse(RUNNING).before_start == ()
