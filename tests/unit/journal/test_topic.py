"""The journal's topic where another controller is faster: no broker gives that answer when asked to."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from airflow_eos_provider.journal import journal_topic
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings


class Raced:
    """Topics of a cluster where the journal comes up between the look for it and its creation."""

    def __init__(self, dated_by: str) -> None:
        self.settings = {"message.timestamp.type": dated_by}

    def __call__(self, _: KafkaSettings) -> Raced:
        return self

    def describe(self, _: list[str]) -> dict[str, object]:
        return {}

    def create(self, _: str, __: int, ___: Mapping[str, str]) -> bool:
        return False

    def settings_of(self, names: list[str]) -> dict[str, dict[str, str]]:
        return dict.fromkeys(names, self.settings)

    def change(self, _: str, settings: Mapping[str, str]) -> None:
        self.settings.update(settings)


@pytest.mark.parametrize(("dated_by", "lines"), [("CreateTime", 1), ("LogAppendTime", 0)])
def test_a_journal_that_another_one_has_just_created_is_dated_by_the_broker(
    monkeypatch: pytest.MonkeyPatch, dated_by: str, lines: int
) -> None:
    raced, said = Raced(dated_by), list[str]()
    monkeypatch.setattr(journal_topic, "Topics", raced)
    journal_topic.prepare_journal(KafkaSettings.of("127.0.0.1:1"), "lab", said.append)
    assert raced.settings == {"message.timestamp.type": "LogAppendTime"}
    assert len(said) == lines
