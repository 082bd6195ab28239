"""Every reason against a roll is found before anything is touched; each is reported by its own check."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_eos_provider.acls.check import AclReport
from airflow_eos_provider.acls.judge import Source, right
from airflow_eos_provider.acls.rules import Role, Rule
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.mode_evidence import ModeVerdict
from airflow_eos_provider.connect.rest import Health, WorkerRoot
from airflow_eos_provider.errors import RefusedError, RolloutPausedError
from airflow_eos_provider.finding import Verdict
from airflow_eos_provider.kafka.acl_values import Acl, Operation, Resource
from airflow_eos_provider.rollout.answer import Check
from airflow_eos_provider.rollout.hosts.host import Obstacle
from airflow_eos_provider.rollout.observe.client_clusters import ClientClusters
from airflow_eos_provider.rollout.plan import obstacles
from airflow_eos_provider.rollout.plan.obstacles import (
    Preflight,
    begins_exactly_once,
    kafka_version,
    other_clusters,
    rights,
)
from airflow_eos_provider.rollout.roll_settings import RolloutSettings
from tests.unit.rollout.conftest import DISABLED, ENABLED, FOREIGN, PREPARING, W1, W2, W3, Cluster, other_group

FAIL, INCONCLUSIVE = Verdict.FAIL, Verdict.INCONCLUSIVE


def check(cluster: Any, target: Mode = PREPARING, **settings: Any) -> Preflight:
    return obstacles.check(cluster.observe(), target, RolloutSettings(**settings))


def not_passed(result: Preflight) -> dict[str, Verdict]:
    return {finding.subject: finding.verdict for finding in result.findings}


def answer(result: Preflight, name: str) -> Check:
    return next(each for each in result.checks if each.subject == name)


def runs_version(version: str) -> Any:
    return lambda c: c.worker(W2, root=WorkerRoot(version, "abc", "kafka-1"))


def differ_in(name: str) -> Any:
    """All workers name this topic, but for the second one."""
    return lambda c: c.says(name, "connect-x").says(name, "of-w2", W2)


def one_process(cluster: Any) -> None:
    cluster.facts(W3, start_token=cluster.workers[W2].facts.start_token)


def only_one_runs(cluster: Any) -> None:
    cluster.stop(W2).stop(W3)


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


PROVIDED = "${file:/etc/topics:name}"

SUPERVISED = Obstacle("restart", "pid 7 was started by pid 6 (bash)", "end what supervises it")
NOT_OURS = Obstacle("change", "w2.properties has the group kafka", "make airflow a member of that group")


@pytest.mark.parametrize(
    ("broken", "name", "verdict", "evidence"),
    [
        (lambda c: c.join(FOREIGN), "roster", FAIL, "w9:8083 is a member of the group, but not in the cluster file"),
        (lambda c: c.leave(W2), "roster", FAIL, "w2:8083 runs, but is not a member of group lab"),
        (lambda c: c.facts(W2, is_running=False), "roster", FAIL, "w2:8083 is a member of the group, but no process"),
        (
            lambda c: c.join("127.0.0.1:8083").leave(W2).see(aliases={"127.0.0.1:8083": W2}),
            "roster",
            FAIL,
            "127.0.0.1:8083, a member of the group, and w2:8083 of the cluster file are the same port",
        ),
        # two groups on the same topics
        (
            lambda c: c.status("file", worker_id=FOREIGN).see(neighbours=(other_group(),)),
            "connectors",
            FAIL,
            "two Connect groups use the same internal topics: w9:8083, a member of group other, reports connector file",
        ),
        (
            lambda c: c.see(neighbours=(other_group("file"),)),
            "connectors",
            INCONCLUSIVE,
            "group other runs connectors of the same names at the same config offset: file",
        ),
        (
            lambda c: c.task("file", 0, worker_id=FOREIGN),
            "connectors",
            INCONCLUSIVE,
            "w9:8083 reports, but is no member of the group: task file-0 RUNNING",
        ),
        (
            lambda c: c.status("file", state="UNASSIGNED"),
            "connectors",
            INCONCLUSIVE,
            "connector file is UNASSIGNED, though the group has placed it on w1:8083",
        ),
        (lambda c: c.see(config=None, config_problem="held back"), "connectors", INCONCLUSIVE, "held back"),
        (lambda c: c.see(statuses=None, statuses_problem="no REST"), "connectors", INCONCLUSIVE, "no REST"),
        (lambda c: c.connector("mirror", inconsistent=True), "connectors", INCONCLUSIVE, "of mirror are not complete"),
        (lambda c: c.assign(W2, leader="connect-w3:8083-1"), "group", INCONCLUSIVE, "do not agree on a leader"),
        (lambda c: c.silent(W2, "it refused the connection"), "REST", FAIL, "w2:8083: it refused the connection"),
        (lambda c: c.worker(W2, health=Health("unhealthy", "it is stuck")), "REST", FAIL, "w2:8083: health is unhea"),
        (
            lambda c: c.worker(W2, root=WorkerRoot("4.3.1", "abc", "kafka-2")),
            "REST",
            FAIL,
            "clusters: kafka-1, kafka-2",
        ),
        (runs_version("3.2.3"), "version", FAIL, "w2:8083 runs Kafka Connect 3.2.3"),
        (runs_version("7.2.1-ccs"), "version", FAIL, "runs Kafka Connect 7.2.1-ccs"),
        (runs_version("unknown"), "version", INCONCLUSIVE, "version 'unknown'"),
        (lambda c: c.facts(W2, problem="it has no 'start'"), "worker files", FAIL, "w2:8083: it has no 'start'"),
        (one_process, "worker files", FAIL, "w3:8083 and w2:8083 are found as one process"),
        (
            lambda c: c.says("group.id", "elsewhere", W2),
            "worker files",
            FAIL,
            "w2.properties says group.id=elsewhere, the cluster description says lab",
        ),
        # what all workers have to have in common
        (lambda c: c.see(config_topic=None), "shared settings", FAIL, "config.storage.topic"),
        *(
            (
                differ_in(name),
                "shared settings",
                FAIL,
                f"the workers differ in {name}: w1:8083: connect-x, w2:8083: of-w2, w3:8083: connect-x",
            )
            for name in ("config.storage.topic", "offset.storage.topic", "status.storage.topic")
        ),
        (lambda c: c.says("offset.storage.topic", "x", W2), "shared settings", FAIL, "w1:8083: none, w2:8083: x"),
        (
            lambda c: c.says("offset.storage.topic", "connect-x").says("offset.storage.topic", PROVIDED, W2),
            "shared settings",
            INCONCLUSIVE,
            f"offset.storage.topic ({PROVIDED} in the configuration of w2:8083), so eos cannot read its value",
        ),
        (
            lambda c: c.stop(W2).says("group.id", PROVIDED, W2),
            "shared settings",
            INCONCLUSIVE,
            "a config provider supplies group.id of w2:8083",
        ),
        (
            lambda c: c.prove(W2, ModeVerdict.UNKNOWN, "its log is gone"),
            "modes",
            INCONCLUSIVE,
            "the mode of w2:8083 is unknown: its log is gone",
        ),
        # who may not be touched from here
        (lambda c: c.facts(W2, obstacles=(SUPERVISED,)), "processes", FAIL, f"{W2}: {SUPERVISED.what}"),
        (lambda c: c.facts(W2, obstacles=(NOT_OURS,)), "processes", FAIL, f"{W2}: {NOT_OURS.what}"),
        # a restart that is under way is not taken for a stop
        (
            lambda c: c.stop(W2).facts(W2, restart="rollout r1 stops it"),
            "processes",
            INCONCLUSIVE,
            "rollout r1 stops it",
        ),
        (only_one_runs, "downtime", FAIL, "w1:8083 is the only worker that runs"),
    ],
)
def test_each_reason_against_a_roll_is_told_by_its_check_alone(
    cluster: Any, broken: Any, name: str, verdict: Verdict, evidence: str
) -> None:
    broken(cluster)
    result = check(cluster)
    assert not_passed(result) == {name: verdict}
    assert evidence in answer(result, name).found
    with pytest.raises(RefusedError if verdict is FAIL else RolloutPausedError) as refused:
        result.require()
    assert evidence in refused.value.found
    assert refused.value.exit_code == (3 if verdict is FAIL else 5)
    for obstacle in cluster.workers[W2].facts.obstacles:
        assert refused.value.remedy == obstacle.remedy


def test_what_a_config_provider_supplies_may_be_proven_elsewhere(cluster: Any) -> None:
    """A member proves its group, the cluster description names the topic."""
    cluster.says("group.id", PROVIDED, W2)
    cluster.says("offset.storage.topic", "offsets").says("offset.storage.topic", PROVIDED, W2)
    cluster.see(described_topics={"offset.storage.topic": "offsets"})
    assert not_passed(check(cluster)) == {}
    cluster.see(described_topics={"offset.storage.topic": "others"})
    assert "the cluster description: others" in answer(check(cluster), "shared settings").found


def test_a_dead_member_is_waited_for_or_started(cluster: Any) -> None:
    """Its pid file is right; it is the worker that is gone."""
    roster = answer(check(cluster.kill(W2)), "roster")
    assert roster.verdict is INCONCLUSIVE
    assert roster.found.startswith("w2:8083 is dead: no process of it runs, though the group still counts it as")
    assert roster.remedy.startswith("start it; or wait: after its session timeout (10 s) the group drops it")


@pytest.mark.parametrize(
    ("mode", "rolled", "found"),
    [
        (PREPARING, DISABLED, "w2:8083 still runs disabled"),
        (DISABLED, PREPARING, "w1:8083, w3:8083 still run disabled"),
    ],
)
def test_no_worker_is_enabled_beside_a_disabled_one(cluster_in: Any, mode: Mode, rolled: Mode, found: str) -> None:
    result = check(cluster_in(mode).roll(W2, rolled, at=1.0), ENABLED)
    assert answer(result, "modes").verdict is FAIL
    assert answer(result, "modes").found == found
    assert answer(result, "modes").remedy == "roll to preparing first: 'eos plan --to preparing'"


def by_hand(cluster: Any, *worker_ids: str) -> Any:
    """Brought to preparing by somebody who has changed nothing but the mode."""
    return cluster.says("isolation.level", None, *worker_ids)


@pytest.mark.parametrize(
    ("mode", "change", "target"),
    [
        # neighbouring modes there and back, and from enabled straight to disabled
        *((PREPARING, lambda c: c, target) for target in (ENABLED, DISABLED)),
        *((ENABLED, lambda c: c, target) for target in (ENABLED, PREPARING, DISABLED)),
        *((ENABLED, lambda c: c.roll(W2, DISABLED, at=1.0), target) for target in (PREPARING, DISABLED)),
        (DISABLED, lambda c: c, DISABLED),
        # its file says preparing already, only its process is older
        (PREPARING, lambda c: c.prove(W2, ModeVerdict.DISABLED).facts(W2, obstacles=(NOT_OURS,)), PREPARING),
        # none needs a restart, whoever's they are
        (PREPARING, lambda c: c.facts(W2, obstacles=(SUPERVISED, NOT_OURS)), PREPARING),
        (PREPARING, lambda c: by_hand(c, W2), PREPARING),
        (PREPARING, only_one_runs, PREPARING),
    ],
)
def test_what_hinders_nothing_passes(cluster_in: Any, mode: Mode, change: Any, target: Mode) -> None:
    cluster = cluster_in(mode)
    change(cluster)
    assert not_passed(check(cluster, target)) == {}


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
        # where one is enabled already the shortest way out is onwards
        (
            PREPARING,
            lambda c: by_hand(c, W2, W3).roll(W1, ENABLED, at=1.0),
            ENABLED,
            {},
            "source offsets",
            "uncommitted until this roll is done",
        ),
        # a lone worker takes nothing over from an enabled one
        (
            PREPARING,
            lambda c: only_one_runs(by_hand(c, W1)),
            ENABLED,
            {"allow_downtime": True},
            "source offsets",
            "w1:8083 would read them uncommitted until",
        ),
        # an older protocol is told and not refused
        *(
            (
                DISABLED,
                lambda c, spoken=spoken: setattr(c, "protocol", spoken),
                PREPARING,
                {},
                "protocol",
                f"connect.protocol={named}: requests between workers are not",
            )
            for spoken, named in (("default", "eager"), ("compatible", "compatible"))
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


def test_what_a_roll_left_down_is_started_first_so_a_lone_worker_does_not_stay_alone(cluster: Any) -> None:
    only_one_runs(cluster)
    result = obstacles.check(cluster.observe(), PREPARING, RolloutSettings(), {W2: "r1"})
    assert not_passed(result) == {}
    assert "w2:8083 (by rollout r1)" in answer(result, "downtime").found


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda c: setattr(c, "group_problem", "no broker answers"), "no broker answers"),
        # while it lasts the broker tells no addresses, so nobody can be called an unknown member or missing
        (lambda c: c.rebalancing(), "PreparingRebalance"),
    ],
)
def test_a_group_that_is_not_readable_or_rebalances_pauses(cluster: Any, change: Any, found: str) -> None:
    change(cluster)
    result = check(cluster)
    assert not_passed(result) == {"roster": INCONCLUSIVE, "group": INCONCLUSIVE}
    assert all(found in finding.found for finding in result.findings)


def test_a_group_that_was_prepared_by_hand_has_to_be_prepared_by_a_roll_first(cluster_in: Any) -> None:
    result = check(by_hand(cluster_in(PREPARING), W2), ENABLED)
    assert not_passed(result) == {"source offsets": FAIL}
    reported = answer(result, "source offsets")
    assert reported.found.startswith("w2:8083 would read them uncommitted")
    assert "records are lost" in reported.found
    assert "'eos plan --to preparing' once more" in reported.remedy


def test_a_lone_worker_whose_file_changes_needs_downtime_though_its_mode_does_not(cluster_in: Any) -> None:
    cluster = by_hand(cluster_in(PREPARING), W1)
    only_one_runs(cluster)
    assert not_passed(check(cluster, PREPARING)) == {"downtime": FAIL}


def test_all_reasons_are_told_at_once_and_a_failure_outweighs_a_doubt(cluster: Any) -> None:
    result = check(cluster.join(FOREIGN).prove(W2, ModeVerdict.UNKNOWN))
    with pytest.raises(RefusedError) as refused:
        result.require()
    assert FOREIGN in refused.value.found
    assert "the mode of w2:8083 is unknown" in refused.value.found
    assert (refused.value.remedy or "").count("eos discover") == 1
    assert (result.to_dict()["target"], result.to_dict()["verdict"]) == ("preparing", "fail")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("3.3.0", (3, 3)),
        ("3.10.0-SNAPSHOT", (3, 10)),
        ("7.2.9-ccs", (3, 2)),
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


@pytest.mark.parametrize(
    ("change", "left_down", "verdict", "found"),
    [
        (lambda c: c, {}, Verdict.PASS, "enabled: as its log says"),
        (lambda c: c.prove(W2, ModeVerdict.PREPARING), {}, FAIL, "runs preparing: as its log says"),
        (lambda c: c.prove(W2, ModeVerdict.UNKNOWN), {}, INCONCLUSIVE, "as its log says"),
        (lambda c: c.stop(W2), {}, Verdict.PASS, "stopped, will join as enabled by its configuration"),
        (lambda c: c.stop(W2), {W2: "r1"}, FAIL, "stopped by rollout r1"),
        (
            lambda c: c.stop(W2).edit_file(W2, PREPARING),
            {},
            FAIL,
            "stopped, will join as preparing by its configuration",
        ),
    ],
)
def test_a_roll_is_verified_when_every_member_is_proven_there_or_will_join_so(
    cluster_in: Any, change: Any, left_down: dict[str, str], verdict: Verdict, found: str
) -> None:
    result = obstacles.verify(change(cluster_in(ENABLED)).observe(), ENABLED, left_down)
    assert (result.verdict, answer(result, W2).found) == (verdict, found)
    assert not_passed(result) == ({} if result.passed else {W2: verdict})


# What a roll makes of the rights that its target asks for


RULE = Rule("User:w", Role.WORKER, Operation.WRITE, Resource.TRANSACTIONAL_ID, "connect-cluster-g")


def report(verdict: Verdict, source: Source = Source.ACLS, *denials: Acl) -> AclReport:
    return AclReport(has_authorizer=True, findings=(right(RULE, verdict, source, "as seen", denials),))


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


#: A right whose absence only leaves out a hint.
OPTIONAL = right(replace(RULE, name="other", is_required=False), Verdict.FAIL, Source.ACLS, "no ACL")


@pytest.mark.parametrize(
    ("seen", "found"),
    [
        (report(Verdict.INCONCLUSIVE, Source.NOBODY), "eos cannot tell whether they exist: as seen"),
        (AclReport(has_authorizer=True, findings=(), notes=("no broker answered",)), "no broker answered"),
        (
            report(Verdict.PASS, Source.ATTEMPT),
            "this roll needs 1 further right; none is missing "
            "(1 tested as the principal, the others checked in the ACLs)",
        ),
        (
            AclReport(has_authorizer=True, findings=(right(RULE, Verdict.PASS, Source.ACLS, "an ACL"), OPTIONAL)),
            "this roll needs 1 further right; none is missing "
            "(0 tested as the principal, the others checked in the ACLs)",
        ),
        (AclReport(has_authorizer=False, findings=()), "the brokers have no authorizer"),
        (None, "this roll needs no further ones"),
    ],
)
def test_what_is_there_or_not_known_is_said_and_refuses_nothing(seen: AclReport | None, found: str) -> None:
    check = rights(seen)
    assert check.verdict is Verdict.PASS
    assert found in check.found


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
    another_name_of_this_cluster = ClientClusters(HERE, HERE, HERE, HERE, has_own_topic=False)
    fine = {"there": ALL_THERE, "here": another_name_of_this_cluster}
    assert other_clusters(fine).passed
    found = other_clusters({**fine, "c": clients})
    assert found.verdict is Verdict.FAIL
    assert found.found.startswith("c: ")
    assert evidence in found.found
    assert "or stop c until that is done" in found.remedy


def test_a_cluster_that_is_not_known_pauses_and_a_known_harm_outweighs_it() -> None:
    unknown = replace(ALL_THERE, producer=HERE, problem="no broker answers", remedy="make it answer")
    found = other_clusters({"c": unknown})
    assert (found.verdict, found.found) == (Verdict.INCONCLUSIVE, "c: no broker answers")
    assert found.remedy.startswith("make it answer")
    assert other_clusters({"c": unknown, "d": replace(ALL_THERE, admin=HERE)}).verdict is Verdict.FAIL


def test_it_is_asked_when_exactly_once_begins_and_not_once_a_worker_runs_in_it() -> None:
    assert not begins_exactly_once(Cluster().observe(), PREPARING)
    preparing = Cluster(PREPARING)
    assert begins_exactly_once(preparing.observe(), ENABLED)
    assert not begins_exactly_once(preparing.roll(W2, ENABLED, at=1.0).observe(), ENABLED)
