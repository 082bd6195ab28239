"""The recorded pipelines of a group and the topics that each writes: they decide which rights the pipelines need.

A revocation for one pipeline keeps the rights that another one needs.
"""

from __future__ import annotations

from airflow_eos_provider.acls.rules import IntervalFacts
from airflow_eos_provider.errors import EosError
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.verify import control, ledger, pipelines_among, topics
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings


def pipelines_on_record(kafka: KafkaSettings, group_id: str) -> list[IntervalFacts]:
    """The pipelines of a group by its control topic, and by ledgers of the usual name, in their order."""
    there = topics(kafka)
    known = control(Pipeline(name="any", group_id=group_id, kafka=kafka), there=there)
    ledgers = {name: f"{group_id}-{name}-offsets" for name in pipelines_among(there, group_id)}
    ledgers |= {name: pins.ledger.name for name, pins in known.pipelines.items() if pins is not None}
    found = []
    for name, topic in sorted(ledgers.items()):
        pins = [known.run(run).pins for run in known.planned(name)]
        try:
            if topic in there:
                state = ledger(Pipeline(name=name, group_id=group_id, kafka=kafka, ledger_topic=topic), there=there)
                pins += [record.pins for record in state.complete_runs()]
        except EosError:
            pins.append(None)
        targets = {each.target.name for each in pins if each is not None and each.target is not None}
        is_unknown = not pins or any(each is None or each.target is None for each in pins)
        found.append(IntervalFacts(group_id, name, tuple(sorted(targets)), topic, writes_elsewhere=is_unknown))
    return found
