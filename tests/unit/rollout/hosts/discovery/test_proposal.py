"""What is proposed from a look at a machine, case by case."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_eos_provider.rollout.hosts.discovery.proposal import ProposedWorker, propose, secret_words, shared
from airflow_eos_provider.rollout.hosts.discovery.search_machine import MachineLook, SeenParent, SeenProcess

URL = "http://connect-1:8083"
CLASS = "org.apache.kafka.connect.cli.ConnectDistributed"
CONFIG = "/etc/kafka/worker.properties"
UNIT = {"Id": "kafka-connect@1.service", "MainPID": "700", "Restart": "always", "StandardOutput": "journal"}
SETTINGS = {"group.id": "orders", "listeners": "http://:8083"}


def worker(pid: int = 700, **values: Any) -> SeenProcess:
    seen = SeenProcess(
        pid=pid,
        command=("java", "-cp", "/opt/kafka/libs/*", CLASS, CONFIG),
        name="java",
        owner="kafka",
        cwd="/opt/kafka",
        written=("/var/log/kafka/connect.log", "/var/log/kafka/connect-gc.log"),
        sockets=frozenset({42}),
        variables=(),
        config=CONFIG,
        config_owner="kafka",
        settings=SETTINGS,
    )
    return replace(seen, **values)


def look(
    *processes: SeenProcess, user: str = "root", login: str = "", groups: frozenset[str] = frozenset()
) -> MachineLook:
    return MachineLook(user, login or user, groups, {"00000000:1F93": frozenset({42})}, processes)


def proposed(seen: MachineLook, url: str = URL) -> ProposedWorker:
    return propose(url, "orders", seen)


def remarks(found: ProposedWorker) -> str:
    return "\n".join(found.remarks)


IN_UNIT: dict[str, Any] = {
    "cgroups": ("/system.slice/system-kafka\\x2dconnect.slice/kafka-connect@1.service",),
    "unit": UNIT,
}


def test_a_unit_is_named_and_its_journal_is_the_log() -> None:
    found = proposed(look(worker(**IN_UNIT)))
    assert found.entry == {"service": {"systemd": "kafka-connect@1"}, "config": CONFIG, "log": {"journal": True}}
    assert (found.pid, found.owner, found.remarks, found.sudo) == (700, "kafka", (), frozenset())


def test_a_unit_that_writes_into_a_file_has_that_as_its_log() -> None:
    unit = {**UNIT, "StandardOutput": "append:/var/log/kafka/out.log"}
    assert proposed(look(worker(**{**IN_UNIT, "unit": unit}))).entry["log"] == "/var/log/kafka/connect.log"


def test_a_log_that_was_seen_to_hold_a_start_comes_before_another() -> None:
    started_in = ("/var/log/kafka/worker.log",)
    assert proposed(look(worker(started_in=started_in))).entry["log"] == "/var/log/kafka/worker.log"


def test_a_unit_whose_main_process_is_another_is_said() -> None:
    found = proposed(look(worker(**{**IN_UNIT, "unit": {**UNIT, "MainPID": "12"}})))
    assert "main process of kafka-connect@1.service is 12" in remarks(found)


def test_a_start_script_that_is_the_main_process_is_the_workers_own() -> None:
    parents = (SeenParent(12, "bash", "/", ("/bin/bash", "/opt/start.sh")),)
    found = proposed(look(worker(**{**IN_UNIT, "unit": {**UNIT, "MainPID": "12"}, "parents": parents})))
    assert found.remarks == ()


def test_a_unit_of_a_user_is_no_service_that_is_restarted() -> None:
    path = "/user.slice/user-1000.slice/user@1000.service/app.slice/connect.service"
    found = proposed(look(worker(cgroups=(path,), unit=UNIT)))
    assert "service" not in found.entry
    assert "user's own systemd" in remarks(found)


def test_a_process_that_was_started_in_a_login_belongs_to_nobody() -> None:
    found = proposed(look(worker(cgroups=("/user.slice/user-0.slice/session-3.scope",))))
    assert found.entry["service"]["start"][0] == "java"
    assert found.entry["service"]["cwd"] == "/opt/kafka"
    assert found.start_pid == 700


@pytest.mark.parametrize(("group", "name"), [("connect", "connect"), ("workers", "workers:connect")])
def test_supervisord_is_asked_by_the_name_that_it_gives(group: str, name: str) -> None:
    supervised = {"SUPERVISOR_PROCESS_NAME": "connect", "SUPERVISOR_GROUP_NAME": group}
    parents = (SeenParent(9, "supervisord", "/", ("/usr/bin/python3", "/usr/bin/supervisord")),)
    in_its_unit = ("/system.slice/supervisor.service",)
    found = proposed(look(worker(supervised=supervised, parents=parents, cgroups=in_its_unit)))
    assert found.entry["service"] == {
        "command": {"restart": ["supervisorctl", "restart", name], "status": ["supervisorctl", "pid", name]}
    }
    assert found.entry["log"] == "/var/log/kafka/connect.log"


def test_the_log_that_a_supervisor_writes_is_proposed_if_there_is_one_alone() -> None:
    supervised = {"SUPERVISOR_PROCESS_NAME": "connect", "SUPERVISOR_GROUP_NAME": "connect"}
    parents = (SeenParent(9, "supervisord", "/", ("/usr/bin/python3", "/usr/bin/supervisord")),)
    silent: dict[str, Any] = {"supervised": supervised, "parents": parents, "written": ()}
    assert proposed(look(worker(**silent, parent_logs=("/a.log",)))).entry["log"] == "/a.log"
    found = proposed(look(worker(**silent, parent_logs=("/a.log", "/b.log"))))
    assert "log" not in found.entry
    assert "its log is one of /a.log, /b.log" in remarks(found)


def test_supervisord_whose_name_for_it_may_not_be_seen_is_a_remark() -> None:
    parents = (SeenParent(9, "supervisord", "", ("/usr/bin/python3", "/usr/bin/supervisord")),)
    found = proposed(look(worker(parents=parents, variables=None)))
    assert "service" not in found.entry
    assert "supervisorctl" in remarks(found)


def test_runit_is_asked_by_the_folder_of_its_service() -> None:
    parents = (SeenParent(9, "runsv", "/etc/service/connect", ("runsv", "connect")),)
    service = proposed(look(worker(parents=parents))).entry["service"]
    assert service["command"]["status"] == ["sv", "status", "/etc/service/connect"]


def test_another_supervisor_is_named() -> None:
    found = proposed(look(worker(parents=(SeenParent(9, "monit"),))))
    assert "monit (pid 9) owns it" in remarks(found)
    assert set(found.entry) == {"config", "log"}


def test_a_container_is_not_rolled() -> None:
    found = proposed(look(worker(cgroups=("/system.slice/docker-4f1e.scope",))))
    assert "runs in a container" in remarks(found)
    assert "service" not in found.entry


def test_a_login_without_rights_is_given_what_goes_through_sudo() -> None:
    seen = worker(**IN_UNIT, sockets=frozenset(), written=None, variables=None, cwd=None, settings=None)
    found = proposed(look(seen, user="eos"))
    assert found.sudo == {"file", "service", "log"}
    assert found.entry["config"] == CONFIG
    assert f"eos may not read {CONFIG}" in remarks(found)
    assert "the only worker of its machine" in remarks(found)


def test_what_was_seen_as_root_is_done_as_the_login() -> None:
    assert proposed(look(worker(**IN_UNIT), user="root", login="eos")).sudo == {"file", "service", "log"}


def test_a_member_of_a_group_of_the_journal_reads_it_without_sudo() -> None:
    seen = worker(**IN_UNIT, config_owner="eos")
    assert proposed(look(seen, user="eos", groups=frozenset({"adm"}))).sudo == {"service"}


def test_a_file_of_a_folder_that_may_not_be_seen_is_a_remark() -> None:
    seen = worker(command=("java", CLASS, "worker.properties"), cwd=None, config="", settings=None, **IN_UNIT)
    found = proposed(look(seen, user="eos"))
    assert "config" not in found.entry
    assert "eos may not see its working folder" in remarks(found)


def test_two_workers_that_may_not_be_told_apart_are_no_proposal() -> None:
    blind: dict[str, Any] = {"sockets": frozenset(), "settings": None}
    found = proposed(look(worker(700, **blind), worker(701, **blind), user="eos"))
    assert found.pid is None
    assert found.entry == {}
    assert "one of the processes 700, 701" in remarks(found)


def test_workers_are_told_apart_by_the_ports_in_their_files() -> None:
    other = worker(701, sockets=frozenset(), settings={"group.id": "orders", "rest.advertised.port": "8084"})
    this = worker(700, sockets=frozenset())
    assert proposed(look(this, other, user="eos")).pid == 700
    assert proposed(look(this, other, user="eos"), "http://connect-1:8084").pid == 701


def test_a_process_that_listens_and_is_of_another_class_is_taken() -> None:
    vendor = worker(command=("java", "io.vendor.Connect", CONFIG))
    assert not vendor.is_worker
    assert proposed(look(vendor)).pid == 700


PROXY: dict[str, Any] = {"command": ("nginx: master process nginx",), "name": "nginx", "config": "", "settings": None}


@pytest.mark.parametrize("settings", [{**SETTINGS, "listeners": "http://:18083", "rest.advertised.port": "8083"}, None])
def test_a_proxy_at_the_advertised_port_is_not_taken_for_the_worker_behind_it(settings: Any) -> None:
    behind = worker(701, sockets=frozenset({43}), settings=settings)
    found = proposed(look(worker(700, **PROXY), behind))
    assert found.pid == 701
    assert "port 8083 is held by process 700 (nginx), which is no Connect worker of this group" in remarks(found)


def test_a_proxy_alone_is_no_worker() -> None:
    found = proposed(look(worker(700, **PROXY)))
    assert (found.pid, found.entry) == (None, {})
    assert "held by process 700 (nginx)" in remarks(found)


def test_secrets_of_a_command_line_are_not_proposed() -> None:
    found = proposed(look(worker(command=("java", "-Dssl.keystore.password=swordfish", CLASS, CONFIG))))
    assert "service" not in found.entry
    assert "swordfish" not in repr(found)
    assert "-Dssl.keystore.password" in remarks(found)


def test_what_all_say_is_said_once() -> None:
    machines = [{"url": "a", "service": {"systemd": "connect"}, "config": "/c"}, {"url": "b", "config": "/c"}]
    assert shared(machines) == {"config": "/c"}
    assert shared(machines[:1]) == {}


@pytest.mark.parametrize(
    ("words", "secrets"),
    [
        (("java", "-cp", "/x/oauth-token.jar:/y", "-Xmx1g", "/etc/worker.properties"), ()),
        (("java", "-Djavax.net.ssl.trustStorePassword=CANARY"), ("-Djavax.net.ssl.trustStorePassword",)),
        (("run", "--password", "CANARY"), ("--password",)),
        (("run", "DB_PASSWORD=CANARY"), ("DB_PASSWORD",)),
        (("run", "http://user:CANARY@host/"), ("an address with a password",)),
        (("/opt/secrets/start.sh", "worker.properties"), ()),
    ],
)
def test_secrets_on_a_command_line_are_named_without_their_values(
    words: tuple[str, ...], secrets: tuple[str, ...]
) -> None:
    assert secret_words(words) == secrets
