"""What the workers, connectors and interval runs of a secured demo may do: the rules of ``acls/rules.py`` only."""

from __future__ import annotations

from airflow_eos_provider.acls.rules import ConnectorFacts, IntervalFacts, connector_rules, interval_rules, worker_rules
from airflow_eos_provider.acls.tool_rules import VERBS, tool_rules
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.demo import intervals
from airflow_eos_provider.demo.load import (
    FILE_CONNECTOR,
    FLIGHTS_TOPIC,
    MIRROR_CONNECTOR,
    MIRROR_TASKS_BEFORE,
    MIRROR_TOPIC,
    OFFSET_SYNCS_TOPIC,
)
from airflow_eos_provider.demo.offsets import OWN_TOPIC
from airflow_eos_provider.kafka.acl_values import Acl, Operation, Resource
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.lab.security import Principal
from airflow_eos_provider.rollout.plan.rights import NAME as RIGHTS
from airflow_eos_provider.rollout.planner import Planner


def grant(lab: Lab, mode: Mode) -> int:
    """Allow the demo's parts what they need in a mode of the workers.

    :param lab: a secured one.
    :returns: how many rights were granted; some may have been there.
    """
    global_topic = f"{lab.group_id}-offsets"
    rules = [
        *worker_rules(lab.worker_facts(mode)),
        *connector_rules(_connector(lab, mode, FILE_CONNECTOR, FLIGHTS_TOPIC, 1, global_topic)),
        *connector_rules(_connector(lab, mode, MIRROR_CONNECTOR, MIRROR_TOPIC, MIRROR_TASKS_BEFORE, global_topic)),
        *connector_rules(_connector(lab, mode, MIRROR_CONNECTOR, MIRROR_TOPIC, MIRROR_TASKS_BEFORE, OWN_TOPIC)),
        *interval_rules(
            IntervalFacts(
                group_id=intervals.GROUP_ID,
                name=intervals.PIPELINE,
                topics=[intervals.TOPIC],
                principal=Principal.INTERVAL_RUNS.acl_name,
            )
        ),
    ]
    rules += tool_rules(lab.tool_facts(Principal.OPERATOR, [OWN_TOPIC]), VERBS)
    acls = {*(rule.acl for rule in rules), *_mirror()}
    lab.allow(acls)
    return len(acls)


def missing_for_the_roll(lab: Lab) -> tuple[str, str]:
    """Which rights the roll to preparing asks for and misses, and what grants them; both empty if it misses none."""
    with Planner(lab.cluster()) as planner:
        checks = planner.preflight(Mode.PREPARING).checks
    return next(((c.evidence, c.remedy or "") for c in checks if c.name == RIGHTS and not c.passed), ("", ""))


def _connector(lab: Lab, mode: Mode, name: str, topic: str, tasks: int, offsets_topic: str) -> ConnectorFacts:
    return ConnectorFacts(
        group_id=lab.group_id,
        name=name,
        tasks=tasks,
        offsets_topic=offsets_topic,
        topics=[topic],
        is_own_topic=offsets_topic == OWN_TOPIC,
        mode=mode,
        producer=Principal.PRODUCER.acl_name,
        consumer=Principal.CONSUMER.acl_name,
        admin=Principal.ADMIN.acl_name,
        existing=[topic],
    )


def _mirror() -> list[Acl]:
    """What MirrorSource does by clients of its own, beside those that Connect gives it: it reads what it copies, looks
    at both topics and their settings, and keeps a topic of offset syncs (KIP-382)."""
    needed = {
        FLIGHTS_TOPIC: (Operation.READ, Operation.DESCRIBE_CONFIGS),
        MIRROR_TOPIC: (Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS),
        OFFSET_SYNCS_TOPIC: (Operation.CREATE, Operation.WRITE, Operation.DESCRIBE_CONFIGS),
    }
    who = Principal.MIRROR.acl_name
    return [Acl(who, operation, Resource.TOPIC, name) for name, found in needed.items() for operation in found]
