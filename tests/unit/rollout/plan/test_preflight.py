"""Every reason against a roll is found before anything is touched; each is reported by its own check."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_eos_provider.acls.check import AclReport
from airflow_eos_provider.acls.judge import Source, right
from airflow_eos_provider.acls.rules import Role, Rule
from airflow_eos_provider.connect.group import Assignment, Member, WorkerGroup
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.mode_evidence import ModeVerdict
from airflow_eos_provider.connect.rest import Health, WorkerRoot
from airflow_eos_provider.errors import RefusedError, RolloutPausedError
from airflow_eos_provider.finding import Verdict
from airflow_eos_provider.kafka.acl_values import Acl, Operation, Resource
from airflow_eos_provider.rollout.check import Check
from airflow_eos_provider.rollout.hosts.host import Obstacle
from airflow_eos_provider.rollout.observe.client_clusters import ClientClusters
from airflow_eos_provider.rollout.plan import preflight
from airflow_eos_provider.rollout.plan.preflight import (
    Preflight,
    begins_exactly_once,
    kafka_version,
    other_clusters,
    rights,
)
from airflow_eos_provider.rollout.settings import RolloutSettings

W1, W2, W3 = "w1:8083", "w2:8083", "w3:8083"


DISABLED, PREPARING, ENABLED = Mode.DISABLED, Mode.PREPARING, Mode.ENABLED


FAIL, INCONCLUSIVE = Verdict.FAIL, Verdict.INCONCLUSIVE


NOW = 1_000_000.0


def check(cluster: Any, target: Mode = PREPARING, **settings: Any) -> Preflight:
    return preflight.check(cluster.observe(), target, RolloutSettings(**settings))


def not_passed(result: Preflight) -> dict[str, Verdict]:
    return {finding.subject: finding.verdict for finding in result.findings}


def answer(result: Preflight, name: str) -> Check:
    return next(each for each in result.checks if each.subject == name)


def runs_version(version: str) -> Any:
    return lambda c: c.worker(W2, root=WorkerRoot(version, "abc", "kafka-1"))


def file_says(**properties: str) -> Any:
    names = {name.replace("_", "."): value for name, value in properties.items()}
    return lambda c: c.facts(W2, properties={**c.workers[W2].facts.properties, **names})


def all_say(name: str, value: str, *, w2: str) -> Any:
    """All workers name this topic, but for the second one."""

    def change(cluster: Any) -> None:
        for worker_id, said in ((W1, value), (W2, w2), (W3, value)):
            properties = {**cluster.workers[worker_id].facts.properties, name: said}
            cluster.facts(worker_id, properties=properties)

    return change


def one_process(cluster: Any) -> None:
    cluster.facts(W3, start_token=cluster.workers[W2].facts.start_token)


def without_start_command(cluster: Any) -> None:
    cluster.facts(W2, problem="it has no 'start'")


def only_one_runs(cluster: Any) -> None:
    cluster.stop(W2).stop(W3)


MEMBERS_AT = 40  # as in conftest.py


def other_group(worker_id: str, *connectors: str) -> WorkerGroup:
    """Another group of the Kafka cluster, which has read its config topic to the offset that this one has."""
    url = f"http://{worker_id}/"
    assignment = Assignment(0, "m", url, MEMBERS_AT, frozenset(connectors), frozenset())
    member = Member("m", "c", "/h", url, worker_id, MEMBERS_AT, assignment=assignment)
    return WorkerGroup("other", "Stable", "sessioned", members=(member,))


def test_a_healthy_cluster_may_be_rolled_to_preparing(cluster: Any) -> None:
    result = check(cluster)
    assert not_passed(result) == {}
    assert result.verdict is Verdict.PASS
    result.require()
    assert {each.subject: each.found for each in result.checks} == {
        "own workers": "no worker has an address of a managed service",
        "roster": "3 members, all described",
        "group": "stable, protocol sessioned, led by w1:8083",
        "protocol": "sessioned",
        "REST": "3 workers answer",
        "version": "4.3.1",
        "worker files": "3 edits for 3 workers, one group",
        "shared settings": "group lab, config topic connect-configs",
        "modes": "w1:8083 disabled, w2:8083 disabled, w3:8083 disabled",
        "processes": "eos can restart each worker and change its configuration from here",
        "source offsets": "each worker of the roll will read them committed",
        "rights": "this roll needs no further ones",
        "downtime": "3 workers run, one restarts at a time",
        "other clusters": "asked when exactly-once begins",
        "connectors": "3 connectors, 5 tasks",
    }


REASONS: dict[str, tuple[Any, str, Verdict, str]] = {
    "a member that is not described": (
        lambda c: c.join("w9:8083"),
        "roster",
        FAIL,
        "w9:8083 is a member of the group, but not in the cluster file",
    ),
    "a running worker that is no member": (
        lambda c: c.leave(W2),
        "roster",
        FAIL,
        "w2:8083 runs, but is not a member of group lab",
    ),
    "a member whose process is not found here": (
        lambda c: c.facts(W2, is_running=False),
        "roster",
        FAIL,
        "w2:8083 is a member of the group, but no process of it is found",
    ),
    "a worker under two names": (
        lambda c: c.join("127.0.0.1:8083").leave(W2).see(aliases={"127.0.0.1:8083": W2}),
        "roster",
        FAIL,
        "127.0.0.1:8083, a member of the group, and w2:8083 of the cluster file are the same port",
    ),
    "a report of another group's worker": (
        lambda c: c.status("file", worker_id="w9:8083").see(neighbours=(other_group("w9:8083"),)),
        "connectors",
        FAIL,
        "two Connect groups use the same internal topics: w9:8083, a member of group other, reports connector file",
    ),
    "two groups on one config topic": (
        lambda c: c.see(neighbours=(other_group("w9:8083", "file"),)),
        "connectors",
        INCONCLUSIVE,
        "group other runs connectors of the same names at the same config offset: file",
    ),
    "a report of a worker that nobody knows": (
        lambda c: c.task("file", 0, worker_id="w9:8083"),
        "connectors",
        INCONCLUSIVE,
        "w9:8083 reports, but is no member of the group: task file-0 RUNNING",
    ),
    "a connector that is unassigned though it is placed": (
        lambda c: c.status("file", state="UNASSIGNED"),
        "connectors",
        INCONCLUSIVE,
        "connector file is UNASSIGNED, though the group has placed it on w1:8083",
    ),
    "no common leader": (
        lambda c: c.assign(W2, leader="connect-w3:8083-1"),
        "group",
        INCONCLUSIVE,
        "the members do not agree on a leader",
    ),
    "a silent worker": (
        lambda c: c.worker(W2, root=None, health=None, rest_problem="http://w2:8083 refused the connection"),
        "REST",
        FAIL,
        "w2:8083: http://w2:8083 refused the connection",
    ),
    "an unhealthy worker": (
        lambda c: c.worker(W2, health=Health("unhealthy", "the herder is stuck")),
        "REST",
        FAIL,
        "w2:8083: health is unhealthy",
    ),
    "two Kafka clusters": (
        lambda c: c.worker(W2, root=WorkerRoot("4.3.1", "abc", "kafka-2")),
        "REST",
        FAIL,
        "different Kafka clusters: kafka-1, kafka-2",
    ),
    "a worker before KIP-618": (runs_version("3.2.3"), "version", FAIL, "w2:8083 runs Kafka Connect 3.2.3"),
    "a Confluent worker before KIP-618": (runs_version("7.2.1-ccs"), "version", FAIL, "runs Kafka Connect 7.2.1-ccs"),
    "a version that says nothing": (runs_version("unknown"), "version", INCONCLUSIVE, "version 'unknown'"),
    "a file that cannot be used": (
        lambda c: c.facts(W2, problem="/etc/w2 is not readable"),
        "worker files",
        FAIL,
        "w2:8083: /etc/w2 is not readable",
    ),
    "no start command": (without_start_command, "worker files", FAIL, "w2:8083: it has no 'start'"),
    "one process for two workers": (
        one_process,
        "worker files",
        FAIL,
        "w3:8083 and w2:8083 are found as one process",
    ),
    "a file of another group": (
        file_says(group_id="elsewhere"),
        "worker files",
        FAIL,
        "w2.properties says group.id=elsewhere, the cluster description says lab",
    ),
    "no config topic": (lambda c: c.see(config_topic=None), "shared settings", FAIL, "config.storage.topic"),
    **{
        f"one worker with another {name}": (
            all_say(name, "connect-x", w2="of-w2"),
            "shared settings",
            FAIL,
            f"the workers differ in {name}: w1:8083: connect-x, w2:8083: of-w2, w3:8083: connect-x",
        )
        for name in ("config.storage.topic", "offset.storage.topic", "status.storage.topic")
    },
    "a topic that one worker does not name": (
        file_says(offset_storage_topic="of-w2"),
        "shared settings",
        FAIL,
        "w1:8083: none, w2:8083: of-w2",
    ),
    "a topic from a config provider": (
        all_say("offset.storage.topic", "connect-x", w2="${file:/etc/topics:topic}"),
        "shared settings",
        INCONCLUSIVE,
        "offset.storage.topic (${file:/etc/topics:topic} in the configuration of w2:8083), "
        "so eos cannot read its value",
    ),
    "a stopped worker whose group comes from a config provider": (
        lambda c: file_says(group_id="${file:/etc/topics:group}")(c.stop(W2)),
        "shared settings",
        INCONCLUSIVE,
        "a config provider supplies group.id of w2:8083",
    ),
    "a mode that is not proven": (
        lambda c: c.prove(W2, ModeVerdict.UNKNOWN, "its log is gone"),
        "modes",
        INCONCLUSIVE,
        "the mode of w2:8083 is unknown: its log is gone",
    ),
    "a single worker": (only_one_runs, "downtime", FAIL, "w1:8083 is the only worker that runs"),
    "an unreadable config topic": (
        lambda c: c.see(config=None, config_problem="an open transaction holds it back"),
        "connectors",
        INCONCLUSIVE,
        "an open transaction holds it back",
    ),
    "unreadable statuses": (
        lambda c: c.see(statuses=None, statuses_problem="no worker answers"),
        "connectors",
        INCONCLUSIVE,
        "no worker answers",
    ),
    "incomplete task configs": (
        lambda c: c.connector("mirror", inconsistent=True),
        "connectors",
        INCONCLUSIVE,
        "the task configs of mirror are not complete in the config topic",
    ),
}


def test_what_a_config_provider_supplies_may_be_proven_elsewhere(cluster: Any) -> None:
    """A member proves its group, the cluster description names the topic."""
    file_says(group_id="${file:/etc/topics:group}", offset_storage_topic="${file:/etc/topics:topic}")(cluster)
    all_say("offset.storage.topic", "offsets", w2="${file:/etc/topics:topic}")(cluster)
    cluster.see(described_topics={"offset.storage.topic": "offsets"})
    assert not_passed(check(cluster)) == {}
    cluster.see(described_topics={"offset.storage.topic": "others"})
    assert "the cluster description: others" in answer(check(cluster), "shared settings").found


@pytest.mark.parametrize("reason", REASONS)
def test_each_reason_against_a_roll_is_told_by_its_check_alone(cluster: Any, reason: str) -> None:
    broken, name, verdict, evidence = REASONS[reason]
    broken(cluster)
    result = check(cluster)
    assert not_passed(result) == {name: verdict}
    assert evidence in answer(result, name).found
    with pytest.raises(RefusedError if verdict is FAIL else RolloutPausedError) as refused:
        result.require()
    assert evidence in refused.value.found
    assert refused.value.exit_code == (3 if verdict is FAIL else 5)


def test_a_dead_member_is_waited_for_or_started(cluster: Any) -> None:
    """Its pid file is right; it is the worker that is gone."""
    roster = answer(check(cluster.kill(W2)), "roster")
    assert roster.verdict is INCONCLUSIVE
    assert roster.found.startswith("w2:8083 is dead: no process of it runs, though the group still counts it as")
    assert roster.remedy.startswith("start it; or wait: after its session timeout (10 s) the group drops it")


def test_no_worker_is_enabled_beside_a_disabled_one(cluster_in: Any) -> None:
    result = check(cluster_in(PREPARING).roll(W2, DISABLED, at=1.0), ENABLED)
    assert not_passed(result) == {"modes": FAIL}
    assert "w2:8083 still runs disabled" in answer(result, "modes").found
    assert answer(result, "modes").remedy == "roll to preparing first: 'eos plan --to preparing'"


@pytest.mark.parametrize("begun", [False, True])
def test_the_way_down_may_lead_from_enabled_straight_to_disabled(cluster_in: Any, begun: bool) -> None:
    cluster = cluster_in(ENABLED)
    if begun:
        cluster.roll(W2, DISABLED, at=1.0)
    assert not_passed(check(cluster, DISABLED)) == {}
    assert not_passed(check(cluster, PREPARING)) == {}


SUPERVISED = Obstacle("restart", "pid 7 was started by pid 6 (bash)", "end what supervises it")


NOT_OURS = Obstacle("change", "w2.properties has the group kafka", "make airflow a member of that group")


@pytest.mark.parametrize("obstacle", [SUPERVISED, NOT_OURS])
def test_a_worker_that_may_not_be_touched_from_here_is_found_before_the_first_one_is(
    cluster: Any, obstacle: Obstacle
) -> None:
    cluster.facts(W2, obstacles=(obstacle,))
    result = check(cluster)
    assert not_passed(result) == {"processes": FAIL}
    assert answer(result, "processes").found == f"{W2}: {obstacle.what}"
    assert answer(result, "processes").remedy == obstacle.remedy


def test_a_file_that_needs_no_change_need_not_be_writable(cluster_in: Any) -> None:
    """Its file says preparing already, only its process is older."""
    cluster = cluster_in(PREPARING).prove(W2, ModeVerdict.DISABLED).facts(W2, obstacles=(NOT_OURS,))
    assert not_passed(check(cluster)) == {}


def test_where_nothing_needs_a_restart_it_does_not_matter_whose_the_workers_are(cluster_in: Any) -> None:
    assert not_passed(check(cluster_in(PREPARING).facts(W2, obstacles=(SUPERVISED, NOT_OURS)))) == {}


def test_a_restart_that_is_under_way_is_waited_for_and_not_taken_for_a_stop(cluster: Any) -> None:
    cluster.stop(W2).facts(W2, restart="a restart of rollout r1 is stopping")
    result = check(cluster)
    assert not_passed(result) == {"processes": INCONCLUSIVE}
    assert "a restart of rollout r1 is stopping" in answer(result, "processes").found


def test_what_a_roll_left_down_is_started_first_so_a_lone_worker_does_not_stay_alone(cluster: Any) -> None:
    only_one_runs(cluster)
    result = preflight.check(cluster.observe(), PREPARING, RolloutSettings(), {W2: "r1"})
    assert not_passed(result) == {}
    assert "w2:8083 (by rollout r1)" in answer(result, "downtime").found


def test_all_that_are_in_the_way_are_named(cluster: Any) -> None:
    evidence = answer(check(cluster.roll(W2, PREPARING, at=1.0), ENABLED), "modes").found
    assert evidence == "w1:8083, w3:8083 still run disabled"


@pytest.mark.parametrize(
    ("current", "target"),
    [(PREPARING, ENABLED), (ENABLED, PREPARING), (PREPARING, DISABLED), (ENABLED, ENABLED), (DISABLED, DISABLED)],
)
def test_neighbouring_modes_may_follow_each_other_there_and_back(cluster_in: Any, current: Mode, target: Mode) -> None:
    assert not_passed(check(cluster_in(current), target)) == {}


@pytest.mark.parametrize(
    ("mode", "change", "target", "settings", "check_name", "found"),
    [
        (DISABLED, lambda c: c.roll(W2, ENABLED, at=1.0), PREPARING, {}, "modes", "w2:8083 enabled"),
        (DISABLED, lambda c: c.stop(W3), PREPARING, {}, "roster", "2 members, all described; w3:8083 stopped"),
        # its file is changed before any restart, so it can never join as disabled
        (PREPARING, lambda c: c.edit_file(W3, DISABLED).stop(W3), ENABLED, {}, "roster", "; w3:8083 stopped"),
        (DISABLED, only_one_runs, PREPARING, {"allow_downtime": True}, "downtime", "1 workers run"),
        (DISABLED, lambda c: c.task("mirror", 1, state="FAILED"), PREPARING, {}, "connectors", "already now in mirror"),
        *(
            (DISABLED, runs_version(version), PREPARING, {}, "version", version)
            for version in ("3.3.0", "7.3.0-ccs", "3.10.0")
        ),
    ],
)
def test_what_hinders_nothing_is_named(
    cluster_in: Any, mode: Mode, change: Any, target: Mode, settings: dict[str, Any], check_name: str, found: str
) -> None:
    cluster = cluster_in(mode)
    change(cluster)
    result = check(cluster, target, **settings)
    assert not_passed(result) == {}
    assert found in answer(result, check_name).found


def test_an_unreadable_group_pauses(cluster: Any) -> None:
    cluster.group_problem = "no broker answers"
    result = check(cluster)
    assert not_passed(result) == {"roster": INCONCLUSIVE, "group": INCONCLUSIVE}
    assert {finding.found for finding in result.findings} == {"no broker answers"}


def test_a_rebalance_pauses_and_refuses_nothing(cluster: Any) -> None:
    """While it lasts the broker tells no addresses, so nobody can be called an unknown member or missing."""
    result = check(cluster.rebalancing())
    assert not_passed(result) == {"roster": INCONCLUSIVE, "group": INCONCLUSIVE}
    assert "PreparingRebalance" in answer(result, "group").found


def by_hand(cluster: Any, *worker_ids: str) -> Any:
    """Brought to preparing by somebody who has changed nothing but the mode."""
    for worker_id in worker_ids:
        facts = cluster.workers[worker_id].facts
        properties = {name: value for name, value in facts.properties.items() if name != "isolation.level"}
        cluster.facts(worker_id, properties=properties)
    return cluster


def test_a_group_that_was_prepared_by_hand_has_to_be_prepared_by_a_roll_first(cluster_in: Any) -> None:
    result = check(by_hand(cluster_in(PREPARING), W2), ENABLED)
    assert not_passed(result) == {"source offsets": FAIL}
    reported = answer(result, "source offsets")
    assert reported.found.startswith("w2:8083 would read them uncommitted")
    assert "records are lost" in reported.found
    assert "'eos plan --to preparing' once more" in reported.remedy
    assert not_passed(check(by_hand(cluster_in(PREPARING), W2), PREPARING)) == {}


def test_where_one_is_enabled_already_the_shortest_way_out_is_onwards(cluster_in: Any) -> None:
    result = check(by_hand(cluster_in(PREPARING), W2, W3).roll(W1, ENABLED, at=1.0), ENABLED)
    assert not_passed(result) == {}
    assert "uncommitted until this roll is done" in answer(result, "source offsets").found


def test_a_lone_worker_takes_nothing_over_from_an_enabled_one(cluster_in: Any) -> None:
    cluster = by_hand(cluster_in(PREPARING), W1).stop(W2).stop(W3)
    assert not_passed(check(cluster, ENABLED, allow_downtime=True)) == {}


def test_a_lone_worker_whose_file_changes_needs_downtime_though_its_mode_does_not(cluster_in: Any) -> None:
    cluster = by_hand(cluster_in(PREPARING), W1).stop(W2).stop(W3)
    assert not_passed(check(cluster, PREPARING)) == {"downtime": FAIL}
    assert not_passed(check(cluster_in(PREPARING).stop(W2).stop(W3), PREPARING)) == {}


@pytest.mark.parametrize(("on_the_wire", "named"), [("default", "eager"), ("compatible", "compatible")])
def test_an_older_protocol_is_told_and_not_refused(cluster: Any, on_the_wire: str, named: str) -> None:
    cluster.protocol = on_the_wire
    result = check(cluster)
    assert result.passed
    assert answer(result, "protocol").found.startswith(f"connect.protocol={named}: requests between workers are not")


def test_all_reasons_are_told_at_once_and_a_failure_outweighs_a_doubt(cluster: Any) -> None:
    cluster.join("w9:8083").prove(W2, ModeVerdict.UNKNOWN)
    with pytest.raises(RefusedError) as refused:
        check(cluster).require()
    assert "w9:8083" in refused.value.found
    assert "the mode of w2:8083 is unknown" in refused.value.found
    assert refused.value.remedy is not None
    assert refused.value.remedy.count("eos discover") == 1


def test_the_answers_are_handed_on(cluster: Any) -> None:
    document = check(cluster.join("w9:8083")).to_dict()
    assert (document["target"], document["verdict"]) == ("preparing", "fail")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("3.3.0", (3, 3)),
        ("4.3.1", (4, 3)),
        ("3.10.0-SNAPSHOT", (3, 10)),
        ("7.2.9-ccs", (3, 2)),
        ("7.3.0-ccs", (3, 3)),
        ("7.3.0-ce", (3, 3)),
        ("8.0.0-ccs", (4, 0)),
        ("3.4.0.redhat-00006", (3, 4)),
        ("2.8", (2, 8)),
        ("unknown", None),
        ("", None),
    ],
)
def test_versions_are_read_as_kafkas_own(text: str, number: tuple[int, int] | None) -> None:
    assert kafka_version(text) == number


# after a roll


def test_a_roll_is_verified_when_every_member_is_proven_there(cluster_in: Any) -> None:
    result = preflight.verify(cluster_in(ENABLED).observe(), ENABLED)
    assert result.passed
    assert answer(result, W2).found == "enabled: as its log says"


@pytest.mark.parametrize(("verdict", "expected"), [(ModeVerdict.PREPARING, FAIL), (ModeVerdict.UNKNOWN, INCONCLUSIVE)])
def test_a_member_that_is_not_proven_there_is_told(cluster_in: Any, verdict: ModeVerdict, expected: Verdict) -> None:
    result = preflight.verify(cluster_in(ENABLED).prove(W2, verdict).observe(), ENABLED)
    assert not_passed(result) == {W2: expected}


def test_a_stopped_worker_is_verified_by_how_it_will_join(cluster_in: Any) -> None:
    cluster = cluster_in(ENABLED).stop(W2)
    assert preflight.verify(cluster.observe(), ENABLED).passed
    left = preflight.verify(cluster.observe(), ENABLED, {W2: "r1"})
    assert (not_passed(left), answer(left, W2).found) == ({W2: FAIL}, "stopped by rollout r1")
    cluster.edit_file(W2, PREPARING)
    result = preflight.verify(cluster.observe(), ENABLED)
    assert not_passed(result) == {W2: FAIL}
    assert "will join as preparing" in answer(result, W2).found


# What a roll makes of the rights that its target asks for


RULE = Rule("User:w", Role.WORKER, Operation.WRITE, Resource.TRANSACTIONAL_ID, "connect-cluster-g")


def report(verdict: Verdict, source: Source = Source.ACLS, *denials: Acl, rule: Rule = RULE) -> AclReport:
    return AclReport(has_authorizer=True, findings=(right(rule, verdict, source, "as seen", denials),))


def test_what_is_missing_refuses_the_roll_and_names_the_line_that_mends_it() -> None:
    check = rights(report(Verdict.FAIL))
    assert check.verdict is Verdict.FAIL
    assert "User:w: Write on TransactionalId connect-cluster-g (worker; as seen)" in check.found
    assert "--allow-principal User:w --operation Write --transactional-id connect-cluster-g" in check.remedy


def test_a_denial_has_no_line_that_mends_it() -> None:
    denial = Acl("User:*", Operation.ALL, Resource.TRANSACTIONAL_ID, "*", is_denial=True)
    check = rights(report(Verdict.FAIL, Source.ACLS, denial))
    assert check.verdict is Verdict.FAIL
    assert "remove the ACLs that deny it" in check.remedy
    assert "kafka-acls" not in check.remedy


def test_what_is_not_known_is_said_and_refuses_nothing() -> None:
    check = rights(report(Verdict.INCONCLUSIVE, Source.NOBODY))
    assert check.verdict is Verdict.PASS
    assert "eos cannot tell whether they exist: as seen" in check.found
    nothing = rights(AclReport(has_authorizer=True, findings=(), notes=("no broker answered",)))
    assert nothing.verdict is Verdict.PASS
    assert "no broker answered" in nothing.found


def test_what_is_there_passes() -> None:
    assert rights(report(Verdict.PASS, Source.ATTEMPT)).found == (
        "this roll needs 1 further right; none is missing (1 tested as the principal, the others checked in the ACLs)"
    )
    assert rights(AclReport(has_authorizer=False, findings=())).verdict is Verdict.PASS
    assert rights(None).verdict is Verdict.PASS


def test_a_right_that_only_leaves_out_a_hint_is_not_counted() -> None:
    optional = right(replace(RULE, name="other", is_required=False), Verdict.FAIL, Source.ACLS, "no ACL")
    needed = right(RULE, Verdict.PASS, Source.ACLS, "an ACL")
    assert rights(AclReport(has_authorizer=True, findings=(needed, optional))).found == (
        "this roll needs 1 further right; none is missing (0 tested as the principal, the others checked in the ACLs)"
    )


# Source connectors whose clients use another Kafka cluster: which of them a roll to enabled would harm


HERE, THERE = "kafka-1", "kafka-2"


#: All its clients are there, and so are its offsets already.
ALL_THERE = ClientClusters(HERE, THERE, THERE, THERE, has_own_topic=True)


@pytest.mark.parametrize(
    ("clients", "evidence"),
    [
        (replace(ALL_THERE, has_own_topic=False), "find none, and start from the beginning"),
        (replace(ALL_THERE, consumer=HERE), "are not part of its transactions"),
        (replace(ALL_THERE, admin=HERE), "would be fenced in kafka-1"),
        (replace(ALL_THERE, producer=HERE, consumer=HERE), "would be fenced in kafka-2"),
        (replace(ALL_THERE, producer=HERE, admin=HERE), "read from kafka-2"),
    ],
)
def test_what_would_be_lost_is_said_with_what_to_do(clients: ClientClusters, evidence: str) -> None:
    found = other_clusters({"fine": ALL_THERE, "c": clients})
    assert found.verdict is Verdict.FAIL
    assert found.found.startswith("c: ")
    assert evidence in found.found
    assert "or stop c until that is done" in found.remedy


@pytest.mark.parametrize(
    "clients",
    [
        ALL_THERE,
        ClientClusters(HERE, HERE, HERE, HERE, has_own_topic=False),  # another name of this cluster
    ],
)
def test_what_a_roll_does_not_harm_passes(clients: ClientClusters) -> None:
    assert other_clusters({"c": clients}).passed


def test_a_cluster_that_is_not_known_pauses_and_a_known_harm_outweighs_it() -> None:
    unknown = replace(ALL_THERE, producer=HERE, problem="no broker answers", remedy="make it answer")
    found = other_clusters({"c": unknown})
    assert (found.verdict, found.found) == (Verdict.INCONCLUSIVE, "c: no broker answers")
    assert found.remedy.startswith("make it answer")
    assert other_clusters({"c": unknown, "d": replace(ALL_THERE, admin=HERE)}).verdict is Verdict.FAIL


def test_it_is_asked_when_exactly_once_begins_and_not_once_a_worker_runs_in_it(cluster: Any, cluster_in: Any) -> None:
    assert not begins_exactly_once(cluster.observe(), Mode.PREPARING)
    preparing = cluster_in(Mode.PREPARING)
    assert begins_exactly_once(preparing.observe(), Mode.ENABLED)
    preparing.roll("w2:8083", Mode.ENABLED, at=1_000_000.0)
    assert not begins_exactly_once(preparing.observe(), Mode.ENABLED)
    assert other_clusters(None).passed
