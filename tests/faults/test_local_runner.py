"""Intervals written on this machine, without Spark."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_eos_provider.errors import ConfigurationError, EosError
from airflow_eos_provider.interval.interval import Run
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.protocol.input_check import InputChangedError
from airflow_eos_provider.kafka.read.reader import read_to_end
from tests.faults.local_runner import LocalRunner, plan_files

Days = Callable[..., Run]


def lines_of(pipeline: Pipeline) -> list[bytes | None]:
    assert pipeline.topic is not None
    return sorted(record.value or b"" for record in read_to_end(pipeline.kafka, pipeline.topic).records)


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    texts = ["".join(f"a{n}\n" for n in range(50)), "", "b0\nb1\nno line feed at the end"]
    paths = [tmp_path / f"{n}.txt" for n in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text)
    return paths


def test_files_are_written_line_by_line_each_once(make_pipeline: Any, days: Days, files: list[Path]) -> None:
    pipeline, run = make_pipeline(), days(1)
    lines: list[str] = []
    runner = LocalRunner(pipeline, run, folder=files[0].parent / "logs", report=lines.append)

    completed = runner.run(lambda: plan_files(run, files, 60), 2)
    again = LocalRunner(pipeline, run, folder=files[0].parent / "logs").run(lambda: plan_files(run, files, 60), 2)

    expected = [*(b"a%d" % n for n in range(50)), b"b0", b"b1", b"no line feed at the end"]
    assert lines_of(pipeline) == sorted(expected)
    assert (completed.records, completed.already) == (53, False)
    assert (again.records, again.digest, again.already) == (53, completed.digest, True)
    assert any("slices to write by 2 tasks" in line for line in lines)


def test_a_task_needs_no_librdkafka(make_pipeline: Any, days: Days, files: list[Path]) -> None:
    """Two attempts in processes that cannot import confluent-kafka; the second finds the first one's slices."""
    pipeline, run = make_pipeline(), days(1)
    died = files[0].parent / "died"
    without = (
        "import json, pathlib, os, signal, sys\n"
        "sys.modules['confluent_kafka'] = None\n"
        "from tests.faults.local_runner import run_task\n"
        "def step(name):\n"
        f"    marker = pathlib.Path({str(died)!r})\n"
        "    begun.append(name)\n"
        "    if begun.count('commit') == 2 and not marker.exists():\n"
        "        marker.touch()\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "begun = []\n"
        "code = run_task(json.load(sys.stdin), on_step=step)\n"
        "assert not any(name.startswith('confluent_kafka.') for name in sys.modules)\n"
        "sys.exit(code)\n"
    )
    runner = LocalRunner(pipeline, run, folder=files[0].parent / "logs", command=[sys.executable, "-c", without])

    assert runner.run(lambda: plan_files(run, files[:1], 60), 1).records == 50

    assert died.exists()
    assert lines_of(pipeline) == sorted(b"a%d" % n for n in range(50))


def test_slices_end_at_lines_and_cover_the_file(days: Days, files: list[Path]) -> None:
    plan = plan_files(days(1), files, 60)

    for path in files:
        ranges = [(s["start"], s["end"]) for s in plan.slices if s["path"] == str(path)]
        assert [start for start, _ in ranges[1:]] == [end for _, end in ranges[:-1]]
        assert not ranges or (ranges[0][0], ranges[-1][1]) == (0, path.stat().st_size)
        assert all(path.read_bytes()[end - 1 : end] == b"\n" for _, end in ranges[:-1])


def test_a_task_that_dies_is_started_again(make_pipeline: Any, days: Days, files: list[Path]) -> None:
    pipeline, run = make_pipeline(), days(1)
    died = files[0].parent / "died"
    dies_once = (
        "import json, os, pathlib, signal, sys\n"
        "from tests.faults.local_runner import run_task\n"
        "def step(name):\n"
        f"    marker = pathlib.Path({str(died)!r})\n"
        "    if name == 'commit' and not marker.exists():\n"
        "        marker.touch()\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "sys.exit(run_task(json.load(sys.stdin), on_step=step))\n"
    )
    runner = LocalRunner(pipeline, run, folder=files[0].parent / "logs", command=[sys.executable, "-c", dies_once])

    assert runner.run(lambda: plan_files(run, files[:1], 60), 1).records == 50

    assert died.exists()
    assert len(lines_of(pipeline)) == 50


def test_a_file_that_has_changed_since_the_plan_is_refused(make_pipeline: Any, days: Days, files: list[Path]) -> None:
    pipeline, run = make_pipeline(), days(1)
    plan = plan_files(run, files, 60)
    files[0].write_text("changed\n")

    with pytest.raises(ConfigurationError, match=r"0\.txt has changed"):
        LocalRunner(pipeline, run, folder=files[0].parent / "logs").run(lambda: plan, 2)


def test_a_task_that_always_fails_ends_the_run_with_its_words(
    make_pipeline: Any, days: Days, files: list[Path]
) -> None:
    pipeline, run = make_pipeline(), days(1)
    broken = [sys.executable, "-c", "raise SystemExit('out of luck')"]

    with pytest.raises(EosError, match=r"failed 4 times(.|\n)*out of luck"):
        LocalRunner(pipeline, run, folder=files[0].parent / "logs", command=broken).run(
            lambda: plan_files(run, files, 60), 1
        )

    assert lines_of(pipeline) == []


#: A task that writes three slices and fails at the fourth, for good.
_FAILS_AT_SLICE_3 = """
import json, sys
from airflow_eos_provider.errors import ConfigurationError
from tests.faults.local_runner import run_task
from airflow_eos_provider.interval.protocol.task import Task
class Fails(Task):
    def write_slice(self, number, batches):
        if number == 3:
            raise ConfigurationError("out of luck")
        return super().write_slice(number, batches)
sys.exit(run_task(json.load(sys.stdin), task_class=Fails))
"""


def test_a_retry_stops_where_its_input_has_other_rows_than_are_committed(
    make_pipeline: Any, days: Days, tmp_path: Path
) -> None:
    """A row has moved to a slice that is not done; the file has the size and the time that were pinned."""
    pipeline, run, file = make_pipeline(), days(1), tmp_path / "rows.txt"
    content = b"".join(b"%04d\n" % n for n in range(50))
    file.write_bytes(content)
    seen = file.stat()

    def put(changed: bytes) -> None:
        file.write_bytes(changed)
        os.utime(file, ns=(seen.st_atime_ns, seen.st_mtime_ns))

    def runner(*command: str) -> LocalRunner:
        return LocalRunner(pipeline, run, folder=tmp_path / "logs", **({"command": command} if command else {}))

    with pytest.raises(ConfigurationError, match="out of luck"):
        runner(sys.executable, "-c", _FAILS_AT_SLICE_3).run(lambda: plan_files(run, [file], 50), 1)
    committed = lines_of(pipeline)
    assert committed == [b"%04d" % n for n in range(30)]

    moved = {b"0012": b"0040", b"0040": b"0012"}
    put(re.sub(b"|".join(moved), lambda match: moved[match[0]], content))
    with pytest.raises(InputChangedError) as refused:
        runner().run(lambda: plan_files(run, [file], 50), 1)

    said = re.findall(r"slice (\d+) is committed with 10 records, digest \w{32}; the input now has", str(refused.value))
    assert said == ["1"]
    assert lines_of(pipeline) == committed

    put(content)
    assert runner().run(lambda: plan_files(run, [file], 50), 2).records == 50
    assert lines_of(pipeline) == [b"%04d" % n for n in range(50)]
