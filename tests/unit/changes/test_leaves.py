"""The table of what is left behind, held against the commands and the names in the code."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

import pytest

import airflow_eos_provider
from airflow_eos_provider.changes.declared import CHANGES
from airflow_eos_provider.interval.interval import Interval, Run
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.journal.name import journal_topic
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.plan_hash import PLANS_FOLDER
from airflow_eos_provider.rollout.hosts import service
from airflow_eos_provider.rollout.hosts.machine.properties_file import backup_path, part_path, replacement_path
from airflow_eos_provider.rollout.hosts.service.restart_act import RECORD_SUFFIX, STATE_FOLDER
from tests.reference import Leaf, commands, journalled, left_behind

PACKAGE = Path(airflow_eos_provider.__file__).parent

#: In the place of the names of these changes.
_LEASED = ("every change with a lease", "every change with a lease but uninstall")

#: What leaves something, and is no command.
_NO_COMMANDS = {"interval runs", "the operators", "the operators of rolls and changes", *_LEASED}

#: Modules that write files, topics or journals, or keep state in Airflow: each is behind a row of the table, or leaves
#: nothing. A new one has to be looked at.
WRITERS = {
    r"\.write_text\(|\.write_bytes\(|os\.open\(.*O_CREAT|NamedTemporaryFile|mkstemp|\.open\(\"[wax]": {
        "cli/cluster/discover.py",
        "cli/rollout/plan_apply.py",
        "interval/spark/shipping.py",  # into Spark's own folder, which ends with the session
        "kafka/settings/tls.py",  # where there is no memfd, for a moment
        "offsets/seen/backup.py",
        "operators/interval_run.py",
        "local_processes.py",  # pid file and log of a worker, which are its own
    },
    r"[tT]opics(\(.*\))?\.create\(|\.create_topic\(": {
        "acls/attempts.py",  # asks only whether it may
        "changes/topics/topics_repair.py",
        "interval/topics/preparation.py",
        "journal/journal_topic.py",
        "kafka/topics.py",
        "offsets/verbs/apply.py",
    },
    r"group_change\(|\bJournal\(": {
        "changes/engine.py",
        "journal/group_change.py",
        "rollout/controller.py",
    },
    r"task_state_store": {
        "operators/approval.py",
        "operators/interval_run.py",  # only takes something out
        "operators/rolling_upgrade.py",
    },
}


@pytest.mark.parametrize("pattern", WRITERS)
def test_whatever_writes_is_known_to_the_table(pattern: str) -> None:
    found = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if path.relative_to(PACKAGE).parts[0] not in ("lab", "demo") and re.search(pattern, path.read_text("utf-8"))
    }
    of_operators = {path for path in found if path.startswith("operators/connect_")}  # as the commands beside them
    assert found - of_operators == WRITERS[pattern], (
        "a row in docs/reference/left-behind.md? Then name the module here."
    )


@pytest.mark.parametrize("leaf", left_behind(), ids=lambda leaf: leaf.name)
def test_each_row_names_commands_that_exist(leaf: Leaf) -> None:
    known = {path.removeprefix("eos ") for path in commands()}
    assert set(leaf.verbs) - _NO_COMMANDS <= known
    assert leaf.verbs


def test_the_names_are_those_of_the_code() -> None:
    names = " ".join(leaf.name for leaf in left_behind())
    assert f"topic {journal_topic('<group>')}" in names
    config = Path("<worker's file>")
    of_file = (backup_path(config), replacement_path(config), part_path(config), replacement_path(backup_path(config)))
    for path in of_file:
        assert str(path) in names
    assert f"{STATE_FOLDER}/<worker>{RECORD_SUFFIX}" in names
    script = resources.files(service).joinpath("restart_act.sh").read_text("utf-8")
    assert f"/{STATE_FOLDER}\n" in script
    assert f"/$name{RECORD_SUFFIX}\n" in script
    assert f"{PLANS_FOLDER}/<hash>.json" in names
    pipeline = Pipeline("p", "g", KafkaSettings.of("here:9092"))
    run = Run("p", Interval.parse("2026-01-01T00:00:00Z/2026-01-02T00:00:00Z"))
    filled = names
    for word, value in {"<interval group>": "g", "<pipeline>": "p", "<run>": run.name, "<number>": "3"}.items():
        filled = filled.replace(word, value)
    for name in (pipeline.control_topic, pipeline.ledger_topic, pipeline.planner_id, pipeline.transactional_id(run, 3)):
        assert name in re.split(r"[ ,]+", filled)


def test_every_command_with_a_hash_is_among_those_that_write_the_journal_or_stands_apart() -> None:
    with_hash = {
        path.removeprefix("eos ")
        for path, command in commands().items()
        if any({"--plan"} & set(parameter.opts) for parameter in command.params)
    }
    assert journalled() > {_LEASED[0]}
    assert with_hash - journalled() == set(CHANGES)
