"""Which further rights a roll needs, and whether the principals have them."""

from __future__ import annotations

from airflow_eos_provider.acls.check import AclReport, check
from airflow_eos_provider.acls.cluster_facts import Principals, Seen, facts_of
from airflow_eos_provider.acls.read_rights import existing, read_authorizer, sources
from airflow_eos_provider.acls.rules import Rule
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.properties import written
from airflow_eos_provider.connect.topics.internal_topics import CONFIGS, OFFSETS, OWN_TOPIC, STATUS
from airflow_eos_provider.errors import EosError
from airflow_eos_provider.kafka.kafka_session import Session
from airflow_eos_provider.rollout.observe.observation import Observation


def added_rights(kafka: Session, observation: Observation, target: Mode) -> AclReport | None:
    """What is known of the rights that the target asks for in addition; None where it asks for none.

    A right that the workers use today is not asked for: they run. What cannot be asked is in the notes.

    :param kafka: the workers' Kafka cluster.
    """
    lowest = lowest_mode(observation)
    if not target.is_above(lowest):
        return None
    try:
        authorizer = read_authorizer(kafka)
        if not authorizer.is_there:
            return AclReport(has_authorizer=False, findings=())
        seen = _seen(kafka, observation)
        facts = facts_of(seen, target, Principals())
        now = set(facts_of(seen, lowest, Principals()).rules())
        added: list[Rule] = [rule for rule in facts.rules() if rule not in now and rule.name]
        return check(added, authorizer, facts.logins, facts.notes, only_doubtful=True) if added else None
    except EosError as error:
        return AclReport(has_authorizer=True, findings=(), notes=(error.found,))


def _seen(kafka: Session, observation: Observation) -> Seen:
    found = sources(observation.config, observation.statuses or {}, {})
    state = observation.config.connectors if observation.config else {}
    running = [each for each in found if each.name not in state or state[each.name].target_state != "STOPPED"]
    topics = {topic.setting: topic.name for topic in observation.topics}
    wanted = {*topics.values(), *(written(each.config, OWN_TOPIC) for each in running)} - {""}
    return Seen(
        group_id=observation.group_id,
        config_topic=topics[CONFIGS],
        offsets_topic=topics[OFFSETS],
        status_topic=topics[STATUS],
        kafka=kafka.settings,
        files=[worker.facts.properties for worker in observation.workers if worker.facts.properties],
        connectors=running,
        existing=existing(kafka, wanted) if wanted else (),
    )


def lowest_mode(observation: Observation) -> Mode:
    """The lowest mode of the workers that run; disabled where one is not known."""
    modes = [worker.mode.verdict.mode for worker in observation.workers if worker.is_running]
    if not modes or None in modes:
        return Mode.DISABLED
    return min((mode for mode in modes if mode is not None), key=list(Mode).index)
