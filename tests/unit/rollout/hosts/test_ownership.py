"""Whose process a worker is: what a user, a unit, a parent and a container tell, each alone."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace

import pytest

from airflow_eos_provider.rollout.hosts.address import is_same_port
from airflow_eos_provider.rollout.hosts.beside_unit import ways
from airflow_eos_provider.rollout.hosts.ownership import ProcessView, ancestors, look, obstacles, own_address

HELPER = ("/bin/sh", "-c", "true")

HERE = ProcessView(
    pid=50, name="eos", uid=1000, parent=40, session=40, cgroups=("/user.slice/user-1000.slice/session-3.scope",),
    namespaces={"pid": "pid:[1]", "mnt": "mnt:[1]"},
)  # fmt: skip
WORKER = replace(HERE, pid=70, name="java", parent=1, session=30)
INIT = ProcessView(pid=1, name="systemd", uid=0, parent=0, session=1)
SHELL = replace(HERE, pid=60, name="bash", parent=1, session=60)
ABOVE = frozenset({50, 40, 1})


def reasons(worker: ProcessView = WORKER, parent: ProcessView | None = INIT, here: ProcessView = HERE) -> list[str]:
    return [f"{found.what}; {found.remedy}" for found in obstacles(worker, parent, here, ABOVE)]


@pytest.mark.parametrize(
    ("worker", "parent"),
    [
        pytest.param(WORKER, INIT, id="an orphan: nohup, -daemon, setsid"),
        pytest.param(WORKER, replace(INIT, name="process_api"), id="an orphan in a container"),
        pytest.param(WORKER, replace(INIT, pid=900, name="systemd"), id="an orphan of a user with its own systemd"),
        pytest.param(WORKER, replace(SHELL, pid=40), id="started by what has started this process"),
        pytest.param(replace(WORKER, session=70), replace(SHELL, name="python"), id="a session of its own"),
        pytest.param(replace(WORKER, cgroups=("/system.slice/ssh.service",)), INIT, id="left running by a login"),
        pytest.param(replace(WORKER, cgroups=("/user.slice/user@7.service/a.scope",)), INIT, id="a desktop"),
        pytest.param(WORKER, None, id="its parent is gone"),
    ],
)  # fmt: skip
def test_a_worker_that_nothing_starts_again_may_be_restarted(worker: ProcessView, parent: ProcessView | None) -> None:
    assert reasons(worker, parent) == []


@pytest.mark.parametrize(
    ("worker", "parent", "words"),
    [
        (replace(WORKER, uid=999_999), INIT, "pid 70 runs as user 999999 (uid 999999)"),
        (WORKER, SHELL, "pid 70 was started by pid 60 (bash), which still runs and may start it again"),
        (replace(WORKER, session=70), SHELL, "pid 60 (bash)"),
        (replace(WORKER, session=70), replace(SHELL, name="s6-supervise"), "pid 60 (s6-supervise)"),
        (WORKER, replace(SHELL, name="sudo"), "pid 60 (sudo)"),
        (WORKER, replace(INIT, name="supervisord"), "pid 1 (supervisord)"),
        (replace(WORKER, cgroups=("/system.slice/connect.service",)), INIT, "the systemd unit connect.service"),
        (replace(WORKER, namespaces={"pid": "pid:[2]", "mnt": "mnt:[1]"}), INIT, "another process namespace"),
        (replace(WORKER, namespaces={"pid": "pid:[1]", "mnt": "mnt:[2]"}), INIT, "another mount namespace"),
        (replace(WORKER, cgroups=("/system.slice/docker-4711.scope",)), INIT, "the container docker-4711.scope"),
    ],
)  # fmt: skip
def test_a_worker_that_belongs_to_something_else_is_refused_with_the_reason(
    worker: ProcessView, parent: ProcessView, words: str
) -> None:
    (reason,) = reasons(worker, parent)
    assert words in reason


def test_a_worker_within_the_unit_of_this_very_process_is_its_own() -> None:
    unit = ("/system.slice/airflow-worker.service",)
    assert reasons(replace(WORKER, cgroups=unit), INIT, replace(HERE, cgroups=unit)) == []


def test_another_user_is_told_who_is_to_do_it() -> None:
    (reason,) = reasons(replace(WORKER, uid=0))
    assert reason.endswith("run this as root")


def test_a_real_process_is_seen_as_it_is() -> None:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as child:
        view = look(child.pid)
        child.kill()
    assert (view.name, view.uid, view.parent, view.session) == ("sleep", os.geteuid(), os.getpid(), child.pid)
    assert view.namespaces.keys() == {"pid", "mnt"}
    assert os.getppid() in ancestors(os.getpid())


def test_the_helper_leaves_the_unit_where_it_can_and_says_where_it_cannot() -> None:
    assert [way.command for way in ways(HELPER, None, systemd_run="/bin/systemd-run", is_root=True)] == [HELPER]
    beside, within = ways(HELPER, "airflow.service", systemd_run="/bin/systemd-run", is_root=False)
    assert beside.command[:3] == ("/bin/systemd-run", "--user", "--scope")
    assert (beside.command[-len(HELPER) :], beside.warning) == (HELPER, "")
    assert within.command == HELPER
    assert "stopping that unit ends it" in within.warning
    assert ways(HELPER, "airflow.service", systemd_run=None, is_root=True) == (within,)


@pytest.mark.parametrize(
    ("properties", "address"),
    [
        ({"listeners": "http://:8083"}, "http://w1:8083/"),
        ({"listeners": "http://127.0.0.1:18083, https://:8083"}, "http://w1:8083/"),
        ({"listeners": "http://:18083", "rest.advertised.port": "8083"}, "http://127.0.0.1:18083"),
        ({"listeners": "https://10.0.0.5:8443"}, "http://10.0.0.5:8443"),
        ({"rest.advertised.port": "9000"}, "http://w1:8083/"),
        ({"rest.advertised.port": "8083", "rest.port": "9000"}, "http://127.0.0.1:9000"),
        ({"listeners": "http://${env:ADDRESS}"}, "http://w1:8083/"),
        ({"group.id": "g"}, "http://w1:8083/"),
        ({}, "http://w1:8083/"),
    ],
)
def test_a_worker_behind_a_proxy_listens_elsewhere_than_it_advertises(properties: dict[str, str], address: str) -> None:
    assert own_address("http://w1:8083/", properties) == address


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ("https://127.0.0.1:8083/", True),
        ("http://127.0.0.1:8084", False),
        ("http://127.0.0.2:8083", False),
        ("http://no-such-host.invalid:8083", False),
    ],
)
def test_two_names_of_one_port_are_the_same(other: str, same: bool) -> None:
    assert is_same_port("http://localhost:8083", other) is same
