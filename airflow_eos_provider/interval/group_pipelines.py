"""The recorded pipelines of a group and the topics that each writes: they decide which rights the pipelines need.

A revocation for one pipeline keeps the rights that another one needs.
"""

from __future__ import annotations

from collections.abc import Collection

from airflow_eos_provider.acls.rules import IntervalFacts
from airflow_eos_provider.errors import EosError
from airflow_eos_provider.interval.topics.control_topic import ControlState
from airflow_eos_provider.interval.topics.ledger import LedgerState
from airflow_eos_provider.interval.topics.pins import Pins
from airflow_eos_provider.interval.topics.reader import TopicReader
from airflow_eos_provider.interval.verify import is_there, pipelines_among, topics
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings


def pipelines_on_record(kafka: KafkaSettings, group_id: str) -> list[IntervalFacts]:
    """The pipelines of a group by its control topic, and by ledgers of the usual name, in their order."""
    there, control = topics(kafka), ControlState()
    topic = f"{group_id}-configs"
    if is_there(kafka, topic, there):
        TopicReader(kafka, topic).read_stable(control.apply)
    ledgers = {name: f"{group_id}-{name}-offsets" for name in pipelines_among(there, group_id)}
    ledgers |= {name: pins.ledger.name for name, pins in control.pipelines.items() if pins is not None}
    return [_facts(kafka, group_id, name, ledger, control, there) for name, ledger in sorted(ledgers.items())]


def _facts(
    kafka: KafkaSettings, group_id: str, name: str, ledger: str, control: ControlState, there: Collection[str]
) -> IntervalFacts:
    pins = [control.run(run).pins for run in control.planned(name)]
    try:
        pins += _of_ledger(kafka, name, ledger) if ledger in there else ()
    except EosError:
        pins.append(None)
    targets = {each.target.name for each in pins if each is not None and each.target is not None}
    is_unknown = not pins or any(each is None or each.target is None for each in pins)
    return IntervalFacts(group_id, name, tuple(sorted(targets)), ledger, writes_elsewhere=is_unknown)


def _of_ledger(kafka: KafkaSettings, name: str, ledger: str) -> list[Pins | None]:
    """The topics of each complete run; None for one that pins none."""
    state = LedgerState(name)
    TopicReader(kafka, ledger).read_stable(state.apply)
    return [record.pins for record in state.complete_runs()]
