"""The mutants: for each sentence that exactly once rests on, the code without it and the tests that notice.

A mutant replaces text as it stands in the source, so one whose text has changed is an error (``tests/unit/
test_mutants.py`` looks at all of them in a moment) and not a mutant that lives unseen.
"""

from __future__ import annotations

from dataclasses import dataclass

_PACKAGE = "airflow_eos_provider"


@dataclass(frozen=True, slots=True)
class Edit:
    """One replacement.

    :param file: path below the project's folder.
    :param old: text that stands there exactly once.
    :param new: what takes its place.
    """

    file: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """The code without one sentence of the proof.

    :param name: by which it is chosen.
    :param without: what it lacks.
    :param edits: how it is made.
    :param killers: ids of the tests of which one has to fail.
    """

    name: str
    without: str
    edits: tuple[Edit, ...]
    killers: tuple[str, ...]


def _mutant(name: str, without: str, file: str, old: str, new: str, *killers: str) -> Mutant:
    """A mutant of one replacement in a module of the package."""
    return Mutant(name, without, (Edit(f"{_PACKAGE}/{file}", old, new),), killers)


_STORIES = "tests/faults/test_interleavings.py"
_CONCURRENCY = "tests/faults/test_concurrency.py"
_BARRIER = "tests/faults/test_barrier.py"
_TOPICS = "tests/faults/test_topics.py"
_MATRIX = "tests/faults/test_failure_matrix.py"
_INPUTS = "tests/integration/test_spark_inputs.py"
_READING = "tests/integration/test_reading.py"
_ERRORS = "tests/faults/test_errors.py"
_WRITE = "tests/integration/test_spark_write.py"
_FILES = "tests/unit/interval/sources/test_files.py"
_SLICES = "tests/unit/interval/spark/test_write.py"
_PRODUCER_FAULTS = "tests/faults/test_producer.py"
_PRODUCER_UNIT = "tests/unit/kafka/write/test_producer.py"
_DIGEST = "tests/unit/interval/write/test_digest.py"
_LEDGER = "tests/unit/interval/topics/test_ledger.py"
_COMMAND = "tests/integration/test_intervals_command.py"

_ADMISSION = (
    _mutant(
        "ledger-before-control",
        "admission reads the ledger after the control topic",
        "interval/protocol/admission.py",
        "        control = self.control_topic.read()\n"
        "        self.topics.compare(control)\n"
        "        self._read_ledger()\n",
        "        self._read_ledger()\n"
        "        control = self.control_topic.read()\n"
        "        self.topics.compare(control)\n",
        f"{_CONCURRENCY}::test_an_interval_that_is_completed_between_a_planners_two_reads_is_seen",
    ),
    _mutant(
        "own-plan-written-again",
        "a plan on record is adopted",
        "interval/protocol/admission.py",
        "    if plan is not None:\n        return plan\n",
        "",
        f"{_STORIES}::test_v4_a_plan_on_record_is_adopted_and_never_written_again",
    ),
    _mutant(
        "planned-overlap-admitted",
        "an interval that overlaps one that is being written is refused",
        "interval/protocol/admission.py",
        "    for other in planned:\n",
        "    for other in ():\n",
        f"{_CONCURRENCY}::test_of_two_overlapping_intervals_exactly_one_is_admitted[one after the other]",
    ),
    _mutant(
        "complete-overlap-admitted",
        "an interval that overlaps a complete one is refused",
        "interval/protocol/admission.py",
        "        if other.interval != run.interval:\n",
        "        if False:\n",
        f"{_CONCURRENCY}::test_of_two_overlapping_intervals_exactly_one_is_admitted[when the other is complete]",
    ),
    _mutant(
        "slices-without-a-plan-not-asked-for",
        "an interval that overlaps one with committed slices is refused, also where its plan is lost",
        "interval/protocol/admission.py",
        "    for other in sorted(begun - set(planned), key=str):\n",
        "    for other in ():\n",
        "tests/unit/interval/protocol/test_admission.py::test_slices_without_a_plan_overlap",
    ),
    _mutant(
        "plans-without-turns",
        "plans of one pipeline are written under one id",
        "interval/pipeline.py",
        'return f"{self.group_id}-{self.name}-planner"',
        "return f\"{self.group_id}-{self.name}-planner-{__import__('os').getpid()}\"",
        f"{_STORIES}::test_overlapping_intervals_are_admitted_one_at_a_time",
    ),
)

_PARTS = (
    _mutant(
        "part-of-what-goes-on",
        "an interval is complete as a part of one that had ended, and of no other",
        "interval/topics/ledger.py",
        "return found if found is not None and found.ended else None",
        "return found",
        f"{_LEDGER}::test_nothing_is_a_part_of_what_had_not_ended_or_was_removed",
    ),
    _mutant(
        "ended-in-any-case",
        "a run says that its interval had ended only if it had when its last attempt began",
        "interval/protocol/coordinator.py",
        "ended=stage.began_at is not None and stage.began_at >= self._run.interval.end.timestamp(),",
        "ended=True,",
        f"{_COMMAND}::test_nothing_is_a_part_of_an_interval_that_has_not_ended",
    ),
    _mutant(
        "part-that-sticks-out",
        "a part lies within the whole",
        "interval/interval.py",
        "found.interval.contains(interval)",
        "found.interval.overlaps(interval)",
        f"{_LEDGER}::test_what_is_not_within_is_no_part",
    ),
    _mutant(
        "part-refused",
        "an interval within a complete one is complete, not refused",
        "interval/protocol/admission.py",
        "    if whole is not None:\n        return whole\n",
        "",
        f"{_CONCURRENCY}::test_an_interval_within_one_that_has_been_completed_writes_nothing"
        "[between a planner's two reads]",
    ),
)

_COORDINATOR = (
    _mutant(
        "first-read-to-the-end",
        "the first look at the ledger does not wait for a dead task",
        "interval/protocol/coordinator.py",
        "self._ledger_topic.read_stable(",
        "self._ledger_topic.read(",
        f"{_STORIES}::test_v2_the_first_look_at_the_ledger_does_not_wait_for_a_dead_task",
    ),
    _mutant(
        "fence-before-generation",
        "the new generation is on record before the old ids are fenced",
        "interval/protocol/coordinator.py",
        "        generation = self._write_generation(assignment)\n        self._fence(state)\n",
        "        self._fence(state)\n        generation = self._write_generation(assignment)\n",
        f"{_STORIES}::test_the_generation_is_on_record_before_the_old_ids_are_fenced",
    ),
    _mutant(
        "old-task-count-ignored",
        "as many ids are fenced as the last task count says",
        "interval/protocol/coordinator.py",
        "range(state.task_count or 0)",
        "range(0)",
        f"{_STORIES}::test_as_many_ids_are_fenced_as_the_last_generation_had",
    ),
    _mutant(
        "open-ids-not-fenced",
        "whatever is open under the run's prefix is fenced",
        "interval/protocol/coordinator.py",
        "self._fence_ids([*counted, *opened])",
        "self._fence_ids(counted)",
        f"{_CONCURRENCY}::test_a_transaction_that_no_task_count_tells_of_is_fenced",
    ),
    _mutant(
        "input-not-compared",
        "a retry writes only if its input has the rows that are committed",
        "interval/protocol/input_check.py",
        "    if differ := _differences(stage.committed, found):\n",
        "    if differ := ():\n",
        f"{_STORIES}::test_a_retry_writes_only_if_its_input_has_the_rows_that_are_committed",
    ),
    _mutant(
        "comparing-forgotten",
        "a stage whose input was not compared is not written",
        "interval/protocol/task.py",
        "        stage.require_compared()\n",
        "",
        "tests/unit/interval/protocol/test_input_check.py::test_a_stage_that_was_not_compared_is_not_written",
    ),
    _mutant(
        "compared-rows-evaluated-again",
        "what is written are the rows that were compared",
        "interval/spark/slicing.py",
        "rows = self.frozen or self._sliced()",
        "rows = self._sliced()",
        "tests/integration/test_spark_write.py::test_the_rows_that_were_compared_are_those_that_are_written",
    ),
    _mutant(
        "stages-run-again-unnoticed",
        "what a stage that ran again has committed is compared with one evaluation before complete",
        "interval/spark/reruns.py",
        "        return f\"Spark has run stage {', '.join(map(str, again))} again\"\n",
        "        return None\n",
        "tests/integration/test_spark_cluster.py::test_an_executor_lost_after_a_commit[True]",
    ),
    _mutant(
        "superseded-driver-fences",
        "a superseded driver does not fence its successor's tasks",
        "interval/protocol/coordinator.py",
        "        if state.generation == stage.generation:\n            return None\n",
        "        return None\n",
        f"{_CONCURRENCY}::test_a_driver_whose_stage_ends_while_its_successor_writes_leaves_it_alone",
    ),
    _mutant(
        "no-second-fencing",
        "whoever holds an id of the run is fenced before complete",
        "interval/protocol/coordinator.py",
        "        self._fence_ids([self._pipeline.transactional_id(self._run, n) for n in range(stage.tasks)])\n",
        "",
        f"{_CONCURRENCY}::test_whoever_holds_an_id_of_the_run_is_fenced_before_complete",
    ),
    Mutant(
        "complete-ahead-of-the-data",
        "complete waits for the markers of the data, by a fencing and for its readers",
        (
            Edit(
                f"{_PACKAGE}/interval/protocol/coordinator.py",
                "self._fence_ids([self._pipeline.transactional_id(self._run, n) for n in range(stage.tasks)])",
                "pass",
            ),
            Edit(
                f"{_PACKAGE}/interval/protocol/coordinator.py",
                "        self._await_readers(stage, {topic for r in done.values() for topic in r.topics})\n",
                "",
            ),
        ),
        ("tests/faults/test_slow_marker.py::test_v3_complete_waits_for_the_markers_in_the_data",),
    ),
    _mutant(
        "readers-not-waited-for",
        "complete waits until readers get past the run's records",
        "interval/protocol/coordinator.py",
        "        self._await_readers(stage, {topic for r in done.values() for topic in r.topics})\n",
        "",
        f"{_TOPICS}::test_complete_waits_for_a_foreign_transaction_and_names_it",
    ),
    _mutant(
        "topics-not-compared-with-the-plan",
        "a run goes on with the topics that it was begun with",
        "interval/topics/run_topics.py",
        "        self._require_same(control.pinned(self._run), self.found)\n",
        "",
        f"{_TOPICS}::test_a_retry_with_other_topics_is_refused[another target]",
    ),
    _mutant(
        "ledger-not-claimed",
        "a ledger says which group and control topic it belongs to",
        "interval/topics/run_topics.py",
        "        if held is None or (held.group, held.control) == (ours.group, ours.control):\n",
        "        if True:\n",
        f"{_TOPICS}::test_a_ledger_has_one_group_and_one_control_topic[another control topic]",
    ),
    _mutant(
        "claim-not-read-again",
        "a claim on a ledger counts if it is the first one in the log",
        "interval/protocol/coordinator.py",
        '        self._step("write claim")\n',
        '        self._topics.compare_claim = lambda ledger: None\n        self._step("write claim")\n',
        f"{_TOPICS}::test_of_two_groups_that_claim_a_ledger_at_once_one_gets_it[commit claim]",
    ),
    _mutant(
        "lost-control-topic-not-fenced",
        "who claims a ledger whose control topic is gone fences all task ids of the pipeline first",
        "interval/protocol/coordinator.py",
        '            self._fence_ids([each for each in ids if each.rpartition("-")[2].isdigit()])\n',
        "",
        f"{_TOPICS}::test_whoever_takes_over_from_a_lost_control_topic_fences_all_ids_of_the_pipeline",
    ),
    _mutant(
        "lost-plans-not-noticed",
        "a control topic that is gone is not replaced while runs are committed in part",
        "interval/topics/run_topics.py",
        "        elif begun := sorted(run.name for run in ledger.begun()):\n",
        "        elif begun := ():\n",
        f"{_TOPICS}::test_a_run_whose_plan_was_lost_is_neither_continued_nor_overlapped[control deleted]",
    ),
    _mutant(
        "topics-not-compared-with-complete",
        "a complete run is complete in the topics that it was written to",
        "interval/topics/run_topics.py",
        '        self._require_same([Pinned("its complete", record.pins)], self.found)\n',
        "",
        f"{_TOPICS}::test_a_finished_run_with_other_topics_is_refused[another target]",
    ),
    _mutant(
        "topics-not-compared-at-the-end",
        "the topics are looked at again right before complete",
        "interval/protocol/coordinator.py",
        '        self._step("write complete")\n        self._topics.compare_again()\n',
        '        self._step("write complete")\n',
        f"{_TOPICS}::test_a_topic_made_anew_in_mid_run_is_caught_before_complete[right before complete-target]",
    ),
    _mutant(
        "lost-ledger-made-anew",
        "a ledger that is missing beside a control topic that knows the pipeline is not made anew",
        "interval/topics/run_topics.py",
        "                self._require_new_pipeline()\n",
        "                pass\n",
        f"{_TOPICS}::test_a_finished_run_with_other_topics_is_refused[ledger deleted]",
    ),
    _mutant(
        "markers-not-asked-for",
        "the partitions are asked for markers that the brokers left out",
        "interval/protocol/coordinator.py",
        "if lost := missing_markers(self._client(), self._pipeline, self._run, topic, self._session):",
        "if lost := ():",
        f"{_BARRIER}::test_a_marker_that_the_brokers_left_out_is_seen",
    ),
    _mutant(
        "missing-slices-complete",
        "complete is written when the ledger has every slice",
        "interval/protocol/coordinator.py",
        "        if missing:\n",
        "        if False:\n",
        f"{_CONCURRENCY}::test_a_run_with_missing_slices_is_not_complete_and_says_which",
    ),
    _mutant(
        "plan-hash-not-compared",
        "a slice that is committed under another plan is not completed",
        "interval/protocol/coordinator.py",
        "if record.plan != stage.plan_hash)",
        "if False)",
        f"{_CONCURRENCY}::test_slices_of_another_plan_are_not_completed",
    ),
    _mutant(
        "abandon-without-second-check",
        "a run of which a slice was committed meanwhile is not given up",
        "interval/protocol/coordinator.py",
        '        self._read_ledger("read ledger")\n        self._require_nothing_done(plan)\n',
        '        self._read_ledger("read ledger")\n',
        f"{_CONCURRENCY}::test_giving_up_is_refused_when_a_slice_is_committed_after_the_first_look",
    ),
    _mutant(
        "abandon-without-fencing",
        "giving up fences the tasks first",
        "interval/protocol/coordinator.py",
        '        self._fence(state)\n        plan = self._read_control("read control again").plan\n',
        '        plan = self._read_control("read control again").plan\n',
        f"{_STORIES}::test_m9_giving_up_fences_the_tasks_first",
    ),
)

_TASK = (
    _mutant(
        "read-before-init",
        "a task takes its id before it reads",
        "interval/protocol/task.py",
        "        self._init()\n        done = self._read_slices()\n",
        "        done = self._read_slices()\n        self._init()\n",
        f"{_STORIES}::test_a_task_takes_its_id_before_it_reads",
        f"{_MATRIX}::test_a_task_that_wakes_up_beside_its_next_attempt_writes_nothing_twice[init]",
    ),
    _mutant(
        "slices-not-read",
        "a task asks the ledger what an earlier attempt has committed",
        "interval/protocol/task.py",
        "self._to_do = set(self.slices) - set(done)",
        "self._to_do = set(self.slices)",
        f"{_STORIES}::test_a_task_asks_the_ledger_what_an_earlier_attempt_has_committed",
    ),
    _mutant(
        "no-look-before-init",
        "an outdated attempt does not fence its successor",
        "interval/protocol/task.py",
        '        self._require_own_generation("read control")\n        self._init()\n',
        "        self._init()\n",
        f"{_STORIES}::test_m7_an_outdated_attempt_does_not_fence_its_successor",
    ),
    _mutant(
        "missing-generation-allowed",
        "a task that does not find its generation writes nothing",
        "interval/protocol/task.py",
        '        if generation is None:\n            raise self._outdated("is complete or abandoned")\n',
        "        if generation is None:\n            return\n",
        f"{_STORIES}::test_m10_a_task_that_does_not_find_its_generation_writes_nothing",
    ),
    _mutant(
        "task-without-topic-ids",
        "a task reads the control topic of its generation, and no other of that name",
        "interval/protocol/task.py",
        "topic_id=stage.control_id or None, report=report",
        "report=report",
        f"{_TOPICS}::test_a_task_of_a_generation_in_another_control_topic_writes_nothing",
    ),
    _mutant(
        "deleted-records-not-noticed",
        "a ledger or control topic that has lost records is refused",
        "interval/topics/run_reader.py",
        "                all_records=True,\n",
        "",
        f"{_TOPICS}::test_a_topic_that_has_lost_records_is_refused[ledger_topic]",
        f"{_TOPICS}::test_a_topic_that_has_lost_records_is_refused[control_topic]",
    ),
    _mutant(
        "control-topic-followed-for-ever",
        "who has not read the control topic for an hour reads it from its beginning, as a tombstone may be gone",
        "interval/topics/control_topic.py",
        "        if self._since_read.seconds() > FOLLOWED_SECONDS:\n            self._from(0)\n",
        "",
        f"{_READING}::test_who_has_not_read_the_control_topic_for_long_reads_it_from_its_beginning",
    ),
    _mutant(
        "topic-id-not-compared",
        "a topic of the same name that is as long is another one",
        "interval/topics/run_reader.py",
        "                topic_id=self.topic_id,\n",
        "",
        f"{_READING}::test_a_control_topic_that_was_made_anew_is_refused",
    ),
    _mutant(
        "ledgers-of-the-stage-not-known",
        "a task that reads only what came since knows the other pipelines' ledgers all the same",
        "interval/protocol/task.py",
        "{**self._stage.ledgers, **state.ledgers}",
        "state.ledgers",
        f"{_ERRORS}::test_a_row_that_names_an_internal_topic_is_refused_and_the_group_stays_readable",
    ),
    _mutant(
        "newer-generation-allowed",
        "a task that finds a newer generation writes nothing",
        "interval/protocol/task.py",
        "        if generation != self._stage.generation:\n",
        "        if False:\n",
        f"{_STORIES}::test_the_generation_is_on_record_before_the_old_ids_are_fenced",
    ),
    _mutant(
        "complete-read-first",
        "a late duplicate reads its slices first and complete last",
        "interval/protocol/task.py",
        "        done = self._read_slices()\n"
        '        self._require_own_generation("read control again")\n'
        "        self._require_incomplete()\n",
        '        self._require_own_generation("read control again")\n'
        "        self._require_incomplete()\n"
        "        done = self._read_slices()\n",
        f"{_CONCURRENCY}::test_a_late_duplicate_before_its_last_read_writes_nothing",
    ),
    _mutant(
        "read-to-the-stable-end",
        "a read goes to the uncommitted end",
        "interval/topics/run_reader.py",
        "return self._read(take, stable_only=False, ",
        "return self._read(take, stable_only=True, ",
        f"{_STORIES}::test_a_read_goes_to_the_uncommitted_end",
    ),
)

_WRITER = (
    _mutant(
        "ledger-record-apart",
        "the ledger record is in the transaction of the data",
        "interval/write/slice_writer.py",
        '                self._step("ledger record")\n',
        '                self._step("ledger record")\n'
        "                self._producer.commit()\n"
        "                self._producer.begin()\n",
        f"{_STORIES}::test_the_ledger_record_is_in_the_transaction_of_the_data",
    ),
    _mutant(
        "expired-rows-written",
        "a row that its topic would soon delete for its age is refused",
        "interval/write/slice_writer.py",
        "            if rows.timestamps is not None:\n",
        "            if False:\n",
        f"{_ERRORS}::test_a_wrong_row_is_named_and_nothing_of_its_slice_is_visible[too old]",
    ),
    _mutant(
        "expired-interval-planned",
        "an interval whose rows the target would soon delete is not planned",
        "interval/protocol/coordinator.py",
        "        if rows_have_times and self._pipeline.topic and not self._pipeline.allow_expired_records:\n",
        "        if False:\n",
        f"{_ERRORS}::test_rows_that_the_target_would_soon_delete_are_refused_before_anything_is_planned",
    ),
    _mutant(
        "ledger-record-before-flush",
        "the ledger record comes when the rows are with the brokers",
        "interval/write/slice_writer.py",
        '            with stages.of("flush"):\n                self._producer.flush()\n',
        '            with stages.of("flush"):\n                pass\n',
        "tests/unit/interval/write/test_slice_writer.py::test_the_ledger_record_comes_last_and_behind_flushed_rows",
    ),
    _mutant(
        "commit-errors-swallowed",
        "a commit that fails is an error",
        "kafka/write/producer.py",
        "            self._wire.run(self._sender.commit, deadline)\n",
        "            with contextlib.suppress(kafka.errors.KafkaError):\n"
        "                self._wire.run(self._sender.commit, deadline)\n",
        f"{_CONCURRENCY}::test_a_task_that_is_fenced_at_its_last_commit_does_not_pass_for_written",
    ),
)

_SPARK = (
    _mutant(
        "begun-together-put-together-anew",
        "neighbours that were begun as one run are finished as that run",
        "interval/spark/backfill.py",
        "for begun in control(pipeline).planned(pipeline.name):",
        "for begun in ():",
        "tests/integration/test_spark_connect.py::test_a_new_server_goes_on_where_one_was_killed",
    ),
    _mutant(
        "files-not-compared-after-the-stage",
        "an interval whose file changes while it is read is not complete",
        "interval/spark/slicing.py",
        "            require_still_pinned(self.frame, self._pinned)\n",
        "            pass\n",
        f"{_INPUTS}::test_an_interval_whose_file_changes_while_it_is_read_is_not_complete",
    ),
    _mutant(
        "files-not-compared-before-the-stage",
        "a retry reads the files that the plan pinned",
        "interval/spark/slicing.py",
        "            require_planned_files(self._pinned.to_plan(), source)\n",
        "            pass\n",
        f"{_INPUTS}::test_a_file_that_changes_comes_or_goes_between_attempts_is_named",
    ),
    _mutant(
        "stale-frame-accepted",
        "a frame that Spark would read as its files were is refused",
        "interval/spark/spark_files.py",
        "    if differ := read.differences(there):\n",
        "    if differ := []:\n",
        f"{_INPUTS}::test_a_frame_whose_files_have_changed_since_it_was_made_is_refused[key]",
    ),
    _mutant(
        "added-file-accepted",
        "a file that was added to a DataFrame's since the plan is refused",
        "interval/sources/source_files.py",
        "        if added := sorted(now.keys() - pinned.by_path.keys()):\n",
        "        if added := []:\n",
        f"{_INPUTS}::test_a_file_that_changes_comes_or_goes_between_attempts_is_named",
    ),
    _mutant(
        "added-source-file-accepted",
        "a file that was added to a files_source since the plan is refused",
        "interval/spark/slicing.py",
        '        self.source.files.require(FileSet.from_dicts(piece["file"] for piece in stage.slices))\n',
        "        pass\n",
        f"{_WRITE}::test_a_file_of_a_files_source_that_comes_or_changes_between_attempts_is_named_even_if_it_looks_the_same",
    ),
    _mutant(
        "changed-file-accepted",
        "a file that changes while it is read is an error",
        "interval/sources/source_files.py",
        "    (now or file).require_unchanged(look_at(file.path))\n",
        "    pass\n",
        f"{_FILES}::test_a_file_that_changes_while_it_is_read_is_an_error_at_its_end",
    ),
    _mutant(
        "other-slices-accepted",
        "a DataFrame goes on with the slices that its run was begun with",
        "interval/spark/slicing.py",
        "        if found != wanted:\n",
        "        if False:\n",
        f"{_WRITE}::test_a_run_that_was_begun_with_another_key_is_not_gone_on_with",
    ),
    _mutant(
        "foreign-rows-accepted",
        "a task writes the rows of its own slices only",
        "interval/spark/executors/tasks.py",
        "        if found is None or (found != last and found not in left):\n",
        "        if False:\n",
        f"{_WRITE}::test_a_row_in_another_tasks_partition_stops_the_run",
    ),
    _mutant(
        "empty-partitions-not-written",
        "a slice whose partition Spark leaves out gets its ledger record",
        "interval/spark/write.py",
        "    if missing:\n",
        "    if False:\n",
        f"{_WRITE}::test_slices_without_rows_complete",
    ),
    _mutant(
        "layout-not-looked-at",
        "where partitions are slices, each task has one of them",
        "interval/spark/slicing.py",
        "        if (found := partition_count(results)) not in (0, self.count):",
        "        if (found := 0):",
        f"{_SLICES}::test_a_plan_without_a_partition_for_each_slice_is_an_error_before_it_runs",
    ),
)

#: What the producer does when an answer is lost or a broker moves.
_PRODUCER = (
    _mutant(
        "repeated-batch-with-new-sequence",
        "a batch whose answer was lost is sent again with the same sequence",
        "kafka/write/sender.py",
        "            kept.tries += 1\n",
        "            kept.tries += 1\n"
        "            if kept.tries > 1:\n"
        "                seal(kept.batch, *self._producer, partition.sequence)\n"
        "                partition.sequence += kept.batch.count\n",
        f"{_PRODUCER_FAULTS}::test_a_connection_that_is_cut_loses_and_doubles_nothing[PRODUCE-True-1]",
    ),
    _mutant(
        "repeated-batches-together",
        "batches are sent again one at a time, and a partition that knows no producer gets one at first",
        "kafka/write/sender.py",
        "self.is_known and self.flying[0].tries == 1 and self.waiting[0].tries == 0",
        "True",
        f"{_PRODUCER_UNIT}::test_a_partition_that_does_not_know_the_producer_gets_one_batch_at_first",
        f"{_PRODUCER_UNIT}::test_what_may_be_lost_is_sent_again_the_same_bytes_one_at_a_time",
    ),
    _mutant(
        "same-epoch-after-abort",
        "after an abort sequences begin anew under the next epoch",
        "kafka/write/sender.py",
        "        self._needs_epoch = True\n",
        "",
        f"{_PRODUCER_FAULTS}::test_what_is_aborted_is_not_visible_and_what_was_not_sent_leaves_no_gap",
    ),
    _mutant(
        "closed-producer-aborts",
        "a producer that is closed leaves its transaction open",
        "kafka/write/producer.py",
        "        self._wire.close()\n\n    @property",
        "        self.abort()\n        self._wire.close()\n\n    @property",
        f"{_PRODUCER_FAULTS}::test_a_producer_that_is_closed_leaves_its_transaction_open",
    ),
    _mutant(
        "coordinator-not-looked-up-again",
        "a coordinator that moved is looked up again",
        "kafka/write/sender.py",
        "                    self._coordinator = None\n            else",
        "                    pass\n            else",
        f"{_PRODUCER_FAULTS}::test_a_broker_that_leads_and_coordinates_is_restarted_in_the_middle_of_a_slice",
    ),
    _mutant(
        "leader-not-asked-for-again",
        "a leader that moved is asked for",
        "kafka/write/sender.py",
        "            await self._wire.refresh(topics, deadline)\n",
        "            pass\n",
        f"{_PRODUCER_FAULTS}::test_a_leader_that_moves_is_found",
    ),
    _mutant(
        "unbounded-queue",
        "what waits for the brokers is bounded",
        "kafka/write/sender.py",
        "self._bytes + len(batch.data) > self._most_bytes",
        "False",
        f"{_PRODUCER_FAULTS}::test_what_waits_for_brokers_is_bounded",
    ),
)

#: The digest of many rows at once.
_DIGESTS = (
    _mutant(
        "digest-with-foreign-bytes",
        "the digest of a row is of its own bytes alone",
        "interval/write/digest.py",
        "                words[:, place] &= masks[rest]\n",
        "                pass\n",
        f"{_DIGEST}::test_many_at_once_have_the_sum_of_their_hashes",
    ),
    _mutant(
        "digest-without-lengths",
        "the digest tells a null from an empty value",
        "interval/write/digest.py",
        "    sums += (column.lengths + 1).astype(np.uint64) * table[:, :1]\n",
        "",
        f"{_DIGEST}::test_many_at_once_have_the_sum_of_their_hashes",
    ),
    _mutant(
        "digest-not-mixed",
        "values that trade places between two records change the digest",
        "interval/write/digest.py",
        "        halves ^= halves >> np.uint64(shift)\n        halves *= np.uint64(factor)\n",
        "        pass\n",
        f"{_DIGEST}::test_values_that_trade_places_change_it",
        f"{_DIGEST}::test_many_at_once_have_the_sum_of_their_hashes",
    ),
)

#: All of them, in the order of the proof.
MUTANTS = (*_ADMISSION, *_PARTS, *_COORDINATOR, *_TASK, *_WRITER, *_SPARK, *_PRODUCER, *_DIGESTS)
