"""Carries out a change of one connector's source offsets: stop, fence, write, read back, configure, start again.

``eos`` and Airflow's operators use it alike. Every step is safe to repeat: a stopped connector stays stopped, a fenced
id is fenced once more, and the offsets to write are compared with the current ones.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus

from airflow_eos_provider.connect.group import describe_group
from airflow_eos_provider.connect.properties import trimmed
from airflow_eos_provider.connect.rest import TaskStatus
from airflow_eos_provider.connect.session import ConnectSession
from airflow_eos_provider.connect.task_failures import name_failure
from airflow_eos_provider.connect.topics.config_topic import ClusterState, ConnectorConfigState, read_cluster_state
from airflow_eos_provider.connect.topics.internal_topics import (
    BROKERS_DEFAULT,
    OWN_TOPIC,
    Role,
    WantedTopic,
    read_worker_files,
)
from airflow_eos_provider.connect.transactional_ids import task_number
from airflow_eos_provider.data_text import counted, one_line
from airflow_eos_provider.errors import (
    ConfigurationError,
    ConnectRestError,
    EosError,
    NothingDoneError,
    PlanMovedError,
    RefusedError,
    RestRefusedError,
)
from airflow_eos_provider.journal.change import PAUSE_SECONDS, GroupChange
from airflow_eos_provider.journal.journal import read_journal
from airflow_eos_provider.journal.records import ChangeRecord
from airflow_eos_provider.kafka.admin.transaction_state import TransactionState
from airflow_eos_provider.kafka.admin.transactions import TransactionListing, TransactionsClient
from airflow_eos_provider.kafka.session import Session
from airflow_eos_provider.kafka.topics import Topics
from airflow_eos_provider.offsets.mode import runs_exactly_once
from airflow_eos_provider.offsets.seen.leftovers import Leftovers, find_leftovers
from airflow_eos_provider.offsets.stores import (
    OffsetStores,
    Store,
    is_elsewhere,
    require_source,
    topic_of,
    unknown_connector,
)
from airflow_eos_provider.offsets.verbs.changes import Write
from airflow_eos_provider.offsets.verbs.plan import OFFSETS_OF, ConnectorLook, OffsetsPlan, PlannedTopic, TargetState
from airflow_eos_provider.offsets.verbs.reader import OffsetsReader
from airflow_eos_provider.offsets.verbs.request import OffsetsRequest, Verb
from airflow_eos_provider.offsets.verbs.write import write_in_transaction, write_plainly

#: How long a worker has to answer a request; one that changes a connector waits for a rebalance.
_REST_SECONDS = 60.0

#: How long a stop, or the way back, may take: a rebalance, a leader that writes new task configurations.
SETTLE_SECONDS = 180.0

#: The tasks of a connector that was started again must run for so long, and do so within so long; seconds.
WATCH_SECONDS = 3.0
_TASKS_SECONDS = 60.0

#: Connect's message if a request took too long; it may still be carried out.
_TIMED_OUT = "Request timed out"


@dataclass(frozen=True, slots=True)
class ConnectorReport:
    """What a change did for one connector."""

    connector: str
    written: int  #: records that this process wrote
    failed: str = ""  #: why the connector does not run, although the change is done; empty if it runs

    @property
    def problem(self) -> EosError | None:
        """The error for a connector that does not run, although the change is done; None if it runs."""
        if not self.failed:
            return None
        return EosError(
            f"The offsets of {self.connector} are changed, but it does not run: {self.failed}.",
            expected="every task RUNNING",
            remedy=f"Fix the cause that the task reports. If it is the offset, see 'eos offsets list {self.connector}'"
            ", then use 'eos offsets alter' or 'restore', which start the connector again.",
        )


class OffsetsChanger:
    """Plans and applies changes of source offsets in one group."""

    def __init__(
        self,
        session: ConnectSession,
        config_topic: str,
        offsets_topic: str,
        *,
        report: Callable[[str], None] = lambda line: None,
        settle_seconds: float = SETTLE_SECONDS,
    ) -> None:
        self.session = session
        self._config_topic = config_topic
        self._offsets_topic = offsets_topic
        self._report = report
        self._settle_seconds = settle_seconds
        self.group_id = session.cluster.group_id

    # looking

    @property
    def kafka_cluster_id(self) -> str:
        """The id of the Kafka cluster."""
        return self.session.kafka.cluster_id()

    def plan(self, request: OffsetsRequest) -> OffsetsPlan:
        """What a change would write."""
        connector = request.connector
        # Looked up first: what is closed while the offsets are read makes the plan an old one.
        closed = self._closed(connector)
        state = self._config()
        configured = state.connectors.get(connector)
        self._require_sources(request, state)
        look = ConnectorLook.of(
            self.group_id,
            self.kafka_cluster_id,
            connector,
            TargetState(configured.target_state) if configured else TargetState.ABSENT,
            configured.config if configured else {},
            exactly_once=self.exactly_once(),
        )
        stores = self._stores(exactly_once=look.exactly_once)
        reader = self._reader(stores, state)
        own_topic = request.own_topic
        if own_topic is not None:
            assert configured is not None  # a migration is of a connector that exists
            if own_topic == (configured.config.get(OWN_TOPIC) or ""):
                own_topic = None  # it is so already
            else:
                wanted = {**configured.config, OWN_TOPIC: own_topic or None}
                self._require_compacted(stores.own(connector, wanted))
                self._require_valid(wanted)
        writes = request.writes(reader, self.kafka_cluster_id, self.group_id)
        if not (writes or closed):  # a closed change proves that the name was meant
            self._require_known(request, state, reader)
        request.require_one_place(reader)
        if own_topic is not None:
            _require_nothing_elsewhere(writes)
        last_change = closed[-1].change_id if closed else ""
        ended = self._ongoing(connector) if request.verb is Verb.PRUNE and look.exactly_once else ()
        return OffsetsPlan.of(request, look, reader.topics.values(), writes, own_topic, last_change, ended)

    def _require_sources(self, request: OffsetsRequest, state: ClusterState) -> None:
        """Check that the request is about a source connector that the REST API can address."""
        kinds = {name: status.type for name, status in self.session.ask(lambda rest: rest.infos()).items()}
        connector = request.connector
        for name in (connector, "" if request.file else request.source):
            require_source(name, kinds.get(name, ""))
        if connector in state.connectors:
            self.session.ask(lambda rest: rest.connector_config(connector))
        elif not request.absent and request.verb not in (Verb.RESET, Verb.PRUNE):
            remedy = None
            if request.verb is not Verb.MIGRATE:
                remedy = f"To write offsets for {connector} before it is created, add --absent."
            raise self._unknown(connector, state, kinds, remedy)

    def _require_known(self, request: OffsetsRequest, state: ClusterState, reader: OffsetsReader) -> None:
        """Check that a request with nothing to write is about a connector that exists, or has left offsets."""
        of_verb = {Verb.RESET: request.connector, Verb.PRUNE: request.connector, Verb.COPY: request.source}
        name = "" if request.file else of_verb.get(request.verb, "")
        left = {left for left in reader.global_topic().committed if left is not None}
        if name and name not in state.connectors and name not in left:
            remedy = "These names include deleted connectors that have left offsets."
            raise self._unknown(name, state, dict.fromkeys(left, ""), remedy)

    def _unknown(
        self, connector: str, state: ClusterState, kinds: Mapping[str, str], remedy: str | None
    ) -> ConfigurationError:
        known = {name for name in (*state.connectors, *kinds) if kinds.get(name) != "sink"}
        return unknown_connector(connector, self.group_id, known, remedy)

    def _ongoing(self, connector: str) -> tuple[str, ...]:
        """The transactional ids of a connector, in the workers' Kafka cluster, whose transaction has no end yet."""
        prefix = f"{self.group_id}-{connector}-"
        with self.session.kafka.transactions() as client:
            known = _known_ids(client, prefix)
        return tuple(one.transactional_id for one in known if one.state is TransactionState.ONGOING)

    def _require_compacted(self, own: Store | None) -> None:
        """Go on only if an own topic that is there already keeps the newest offset of each key."""
        if own is None:
            return
        topics = Topics(own.kafka.settings)
        if not topics.is_there(own.topic):
            return
        policy = topics.settings_of([own.topic])[own.topic]["cleanup.policy"]
        if policy != "compact":
            raise ConfigurationError(
                f"Topic {own.name} has cleanup.policy={policy}: offsets would be deleted there after a time.",
                expected="cleanup.policy=compact",
                remedy=f"Set cleanup.policy=compact on {own.name}, or name another topic.",
            )

    def _require_valid(self, config: Mapping[str, str | None]) -> None:
        """Go on only if Connect takes this configuration."""
        given = {name: value for name, value in config.items() if value is not None}
        errors = self.session.ask(lambda rest: rest.validate(given["connector.class"], given)).errors
        if errors:
            raise ConfigurationError(
                f"Connect does not take {given.get('name')} with {OWN_TOPIC}={given.get(OWN_TOPIC, 'unset')}: "
                f"its validation finds errors in {', '.join(sorted(errors))}.",
                remedy="Correct the connector's configuration first (PUT /connector-plugins/<class>/config/validate).",
            )

    def _stores(self, *, exactly_once: bool) -> OffsetStores:
        return OffsetStores(self.session, self._offsets_topic, lambda: exactly_once)

    def _reader(self, stores: OffsetStores, state: ClusterState) -> OffsetsReader:
        partitions = self._own_topic("").partitions
        if partitions is None or partitions == BROKERS_DEFAULT:
            partitions = Role.OWN.default_partitions
        return OffsetsReader(stores, state, partitions)

    def deleted(self, leftovers: Mapping[str, Leftovers] | None = None) -> list[str]:
        """The connectors that do not exist any more and have left what a prune removes.

        That are offsets in the global topic, or, where exactly-once is on, an open transaction.
        """
        found = self.leftovers() if leftovers is None else leftovers
        only_open = any(left.is_open and not left.offsets for left in found.values()) and self.exactly_once()
        return [name for name, left in found.items() if left.offsets or (only_open and left.is_open)]

    def leftovers(self) -> dict[str, Leftovers]:
        """By name what connectors have left that do not exist any more, in the workers' Kafka cluster."""
        state = self._config()
        global_topic = self._reader(OffsetStores(self.session, self._offsets_topic), state).global_topic()
        with self.session.kafka.transactions() as client:
            return find_leftovers(self.group_id, state, global_topic, client)

    def existing(self) -> set[str]:
        """The connectors of the group."""
        return set(self._config().connectors)

    def exactly_once(self) -> bool:
        """Whether all workers run in the mode ``enabled``, see :func:`runs_exactly_once`."""
        return runs_exactly_once(self.session)

    def _config(self) -> ClusterState:
        return read_cluster_state(self.session.kafka, self._config_topic)

    # acting

    def carry_out(self, plan: OffsetsPlan, change: GroupChange) -> ConnectorReport:
        """Carry a plan out, or go on with it where an earlier process has left it.

        :raises PlanMovedError: the connector or its offsets are not as planned. The connector is as it was before, or
            as another person has left it.
        :raises RefusedError: the connector was started or configured meanwhile. Its tasks go on with the offsets that
            they have; the same command stops it again and goes on.
        :raises EosError: it could not be finished. The connector may be stopped; the same command takes it up.
        """
        written, stopped = 0, None
        if not change.is_done("write") or self._may_have_gone_on(change, plan):
            written, stopped = self._stop_and_write(change, plan)
        if plan.own_topic is not None and not change.is_done("configure"):
            with change.step("configure"):
                self._configure(change, plan, stopped)
        return ConnectorReport(plan.look.connector, written, self._bring_back(change, plan))

    def done_before(self, plan: OffsetsPlan) -> ConnectorReport:
        """The report of a plan that another process has carried out."""
        connector = plan.look.connector
        return ConnectorReport(connector, 0, "" if plan.is_at_rest else _failure(self._tasks(connector)))

    def _create(self, planned: PlannedTopic, store: Store) -> None:
        """Create an own topic as a worker does; with fewer copies where there are fewer brokers."""
        topics, wanted = Topics(store.kafka.settings), self._own_topic(store.topic)
        replicas = wanted.replicas
        if replicas is not None and replicas != BROKERS_DEFAULT:
            replicas = min(replicas, topics.brokers())
        if not topics.create(store.topic, planned.partitions, wanted.settings, replicas):
            self._require_compacted(store)  # it was made since
        self._report(f"topic {planned.name} is created: {planned.partitions} partitions.")

    def _own_topic(self, name: str) -> WantedTopic:
        return read_worker_files(self.session.cluster).wanted(Role.OWN, name)

    def _closed(self, connector: str) -> list[ChangeRecord]:
        """The changes of a connector's offsets that are over, in the order of the log."""
        found = read_journal(self.session.kafka, self.group_id).changes.values()
        own = [change for change in found if connector in change.plan.get("content", {}).get(OFFSETS_OF, ())]
        return [change for change in own if not change.state.is_open]

    def _may_have_gone_on(self, change: GroupChange, plan: OffsetsPlan) -> bool:
        """Whether a migration that is taken up has to move the offsets once more.

        Until the connector has its new configuration its tasks read and write the former place; if an operator has
        started it meanwhile, what was moved is behind.
        """
        if plan.own_topic is None or change.is_done("configure") or self._is_configured(plan):
            return False
        plan.require_own_topic(self._own_topic_of(plan))
        return True

    def _stop_and_write(self, change: GroupChange, plan: OffsetsPlan) -> tuple[int, ConnectorConfigState | None]:
        """The first steps, each of which may be repeated."""
        created = plan.created
        try:
            if created is not None and not change.is_done("create"):
                with change.step("create"):
                    self._create(created, self._planned_stores(plan)[created.name])
            with change.step("stop"):
                stopped = self._stop(change, plan)
            if plan.look.exactly_once:
                with change.step("fence"):
                    self._require_still_stopped(plan, stopped)  # what runs now is no zombie
                    self._fence(plan, stopped)
            with change.step("write"):
                return self._write(change, plan, stopped), stopped
        except NothingDoneError:
            self._bring_back(change, plan, watch=False)
            raise
        except ConfigurationError as error:
            # The principal may not: the connector need not wait for its rights where nothing is written yet. Where
            # Connect refused even the stop, there is nothing to bring back, and the change is closed.
            was_stopped = change.is_done("stop") or not isinstance(error, RestRefusedError)
            if was_stopped and not change.is_done("fence" if plan.look.exactly_once else "stop"):
                with contextlib.suppress(EosError):  # the refusal is the error to report
                    self._bring_back(change, plan, watch=False)
            raise

    def _stop(self, change: GroupChange, plan: OffsetsPlan) -> ConnectorConfigState | None:
        """Stop the connector and wait until no worker has a task of it.

        :returns: the connector as it is then; None if there is none.
        """
        connector = plan.look.connector
        if self._existing(plan) is None:
            return None
        change.confirm("stop")
        self._report(f"{connector}: stopping it, and waiting until no worker runs a task of it.")
        self.session.ask(lambda rest: rest.stop(connector))
        change.until(lambda: self._is_to_stop(plan), f"the stop of {connector} on record", self._settle_seconds)
        return change.until(lambda: self._stopped(plan), f"{connector} to stop", self._settle_seconds)

    def _existing(self, plan: OffsetsPlan) -> ConnectorConfigState | None:
        """The connector as it is; None if there is none, as planned."""
        found = self._config().connectors.get(plan.look.connector)
        plan.require_existence(exists=found is not None)
        return found

    def _is_to_stop(self, plan: OffsetsPlan) -> bool:
        found = self._existing(plan)
        return found is not None and found.target_state == TargetState.STOPPED

    def _stopped(self, plan: OffsetsPlan) -> ConnectorConfigState | None:
        """The connector, if it is stopped: no tasks on record (KIP-875), and none with a member of the group."""
        connector, found = plan.look.connector, self._existing(plan)
        if found is not None and found.target_state != TargetState.STOPPED:
            raise _touched(connector)
        if found is None or found.task_count:
            return None
        return None if describe_group(self.session.kafka, self.group_id).may_run(connector) else found

    def _fence(self, plan: OffsetsPlan, stopped: ConnectorConfigState | None) -> None:
        """Shut out every producer of the connector's tasks, zombies with an open transaction too."""
        connector = plan.look.connector
        prefix = f"{self.group_id}-{connector}-"
        count = max(stopped.task_count_record or 0 if stopped else 0, 1)
        for cluster_id, kafka in self._clusters(self._own_stores(plan, connector).values()).items():
            with kafka.transactions() as client:
                ids = {f"{prefix}{number}" for number in range(count)}
                # Tasks of a higher number that it had once, too, open or not.
                ids.update(one.transactional_id for one in _known_ids(client, prefix))
                client.fence(ids)
            where = f" in the Kafka cluster {cluster_id}" if cluster_id else ""
            self._report(f"{connector}: {counted(len(ids), 'transactional id')} fenced{where}.")

    def _planned_stores(self, plan: OffsetsPlan) -> dict[str, Store]:
        """By name the stores of a planned change."""
        names = {topic.name for topic in plan.topics}
        found = {name: Store(name, self.session.kafka) for name in names if not is_elsewhere(name)}
        if lost := names - found.keys():
            known = {**self._own_stores(plan, plan.request.source), **self._own_stores(plan, plan.look.connector)}
            if not lost <= known.keys():
                raise PlanMovedError(
                    f"The clients of {plan.look.connector} no longer use the Kafka cluster in which it has "
                    f"{', '.join(sorted(map(topic_of, lost)))}.",
                    remedy="Make the plan again.",
                )
            found |= {name: known[name] for name in lost}
        return found

    def _own_stores(self, plan: OffsetsPlan, connector: str) -> dict[str, Store]:
        """By name the own stores that a connector of a planned change has, or is to have. No connector has none."""
        if not connector:
            return {}
        stores = self._stores(exactly_once=plan.look.exactly_once)
        state = self._config().connectors.get(connector)
        config: Mapping[str, str | None] = state.config if state else {}
        wanted = [config] if plan.own_topic is None else [config, {**config, OWN_TOPIC: plan.own_topic}]
        found = [stores.own(connector, each) for each in wanted]
        return {store.name: store for store in found if store is not None}

    def _clusters(self, stores: Iterable[Store]) -> dict[str, Session]:
        """By id the Kafka clusters of these stores; that of the workers, whose id is empty here, before others."""
        found = {"": self.session.kafka, **{store.cluster_id: store.kafka for store in stores}}
        return dict(sorted(found.items()))

    def _write(self, change: GroupChange, plan: OffsetsPlan, stopped: ConnectorConfigState | None) -> int:
        """Write what is not written yet, and read it back."""
        connector = plan.look.connector
        self._require_still_stopped(plan, stopped)  # before the write takes the id of a task that runs again
        left = self._left_to_write(plan)
        plan.require_within(left)
        if left:
            change.confirm("write")
            remaining = self._left_to_write(plan) if self._checked_by_connector(plan) else left
            # What the tasks read may be in another Kafka cluster than the workers': it is written last.
            stores = self._planned_stores(plan)
            for cluster_id, kafka in self._clusters(stores.values()).items():
                if there := [write for write in remaining if stores[write.topic].cluster_id == cluster_id]:
                    self._write_there(change, plan, stopped, kafka, there)
        missing = self._left_to_write(plan)
        if missing:
            raise EosError(
                f"{len(missing):,} of {counted(len(left), 'record')} do not have the value that was written: another "
                f"program writes to {', '.join(sorted({write.topic for write in missing}))}.",
                remedy="Find it with 'eos offsets list -o wide'; then give the same command again.",
            )
        self._report(f"{connector}: {counted(len(left), 'record')} written, and read back.")
        return len(left)

    def _checked_by_connector(self, plan: OffsetsPlan) -> bool:
        """Let the connector check new offsets: ``SourceConnector.alterOffsets``, which Connect calls before it writes.

        Connect cannot only check: it also writes these offsets, which this change would write anyway.

        :returns: whether Connect has checked and written them.
        """
        connector = plan.look.connector
        wanted = plan.request.checked_offsets(self._reader_of(plan))
        if not wanted:
            return False
        try:
            self.session.ask(lambda rest: rest.alter_offsets(connector, wanted))
        except ConnectRestError as error:
            # Before 3.6 there is no such request. 4.3.1 fails before it checks where the connector has never run.
            if error.status in (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED) or "taskConfig" in error.found:
                self._report(f"{connector}: Connect cannot check the new offsets ({one_line(error.found)}).")
                return False
            if _TIMED_OUT in error.found or error.status not in (400, 500):
                raise
            raise NothingDoneError(
                f"{connector} does not take these offsets: {error.found}",
                remedy="Nothing was written. Correct the offsets and make the plan again.",
            ) from error
        return True

    def _write_there(
        self,
        change: GroupChange,
        plan: OffsetsPlan,
        stopped: ConnectorConfigState | None,
        kafka: Session,
        writes: list[Write],
    ) -> None:
        """Write into one Kafka cluster."""
        connector = plan.look.connector
        if plan.look.exactly_once:
            write_in_transaction(
                kafka.settings,
                f"{self.group_id}-{connector}-0",
                writes,
                lambda: self._require_still_stopped(plan, stopped),
            )
            markers = f"the markers of the offsets written for {connector}"
            change.until(lambda: self._is_marked(kafka, connector), markers, self._settle_seconds)
        else:
            self._require_still_stopped(plan, stopped)
            write_plainly(kafka.settings, writes)
            self._require_still_stopped(plan, stopped)

    def _is_marked(self, kafka: Session, connector: str) -> bool:
        """Whether the write has ended everywhere: a commit returns before its markers are in the topics."""
        id_ = f"{self.group_id}-{connector}-0"
        with kafka.transactions() as client:
            return not any(known.state.is_open for known in client.describe([id_]).values())

    def _left_to_write(self, plan: OffsetsPlan) -> list[Write]:
        """What the change would write now."""
        reader = self._reader_of(plan)
        writes = plan.request.writes(reader, self.kafka_cluster_id, self.group_id)
        for planned in plan.topics:
            topic = reader.topics.get(planned.name)
            is_new = planned == plan.created
            same = topic is not None and len(topic.ends) == planned.partitions and (is_new or topic.id == planned.id)
            if not same:
                raise PlanMovedError(
                    f"The topic {planned.name} is not the planned one: it was created again, or has other partitions.",
                    remedy="Make the plan again.",
                )
        return [write for write in writes if write.changes]

    def _reader_of(self, plan: OffsetsPlan) -> OffsetsReader:
        return self._reader(self._stores(exactly_once=plan.look.exactly_once), self._config())

    def _require_still_stopped(self, plan: OffsetsPlan, stopped: ConnectorConfigState | None) -> None:
        """Go on only if the connector was not started, even for a moment: that writes another commit record."""
        now = self._existing(plan)
        before = stopped and (stopped.target_state, stopped.commit_offset, stopped.config_offset)
        if before != (now and (now.target_state, now.commit_offset, now.config_offset)):
            raise _touched(plan.look.connector)

    def _require_not_started(self, plan: OffsetsPlan, stopped: ConnectorConfigState | None) -> None:
        """Go on only if the connector was not started, even for a moment. What others configure does not matter."""
        now = self._existing(plan)
        before = stopped and (stopped.target_state, stopped.commit_offset)
        if before != (now and (now.target_state, now.commit_offset)):
            raise _touched(plan.look.connector)

    def _configure(self, change: GroupChange, plan: OffsetsPlan, stopped: ConnectorConfigState | None) -> None:
        """Give the stopped connector its own offsets topic, or take it away.

        :raises RefusedError: it was started since, so that its tasks may have written newer offsets in the former
            place; or it has a third topic. If it was started in the moment of the request, what it has delivered
            then may come again.
        """
        connector = plan.look.connector
        self._existing(plan)
        config = self.session.ask(lambda rest: rest.connector_config(connector))
        own_topic = trimmed(config).get(OWN_TOPIC) or ""
        plan.require_own_topic(own_topic)
        if own_topic != plan.own_topic:
            change.confirm("configure")
            self._require_not_started(plan, stopped)
            self._set_own_topic(plan, config)
            change.until(
                lambda: self._is_configured(plan), f"{connector} to have its new configuration", self._settle_seconds
            )
            self._require_not_started(plan, stopped)  # a rebalance may have held the request up
        change.until(
            lambda: self._is_configured(plan), f"{connector} to have its new configuration", self._settle_seconds
        )
        self._report(f"{connector}: {OWN_TOPIC} is {plan.own_topic or 'not set any more'}.")

    def _set_own_topic(self, plan: OffsetsPlan, config: Mapping[str, str]) -> None:
        """Change this property alone, so that what others change at this moment stays.

        :param config: the whole configuration, for workers before 3.8 (KIP-477); there a connector that is deleted at
            this moment is created again.
        """
        connector, own_topic = plan.look.connector, plan.own_topic or None
        try:
            self.session.ask(lambda rest: rest.patch_config(connector, {OWN_TOPIC: own_topic}))
        except ConnectRestError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                self._existing(plan)
            if error.status != HTTPStatus.METHOD_NOT_ALLOWED:
                raise
            others = {name: value for name, value in config.items() if name != OWN_TOPIC}
            wanted = {**others, **({OWN_TOPIC: own_topic} if own_topic else {})}
            self.session.ask(lambda rest: rest.put_config(connector, wanted))

    def _is_configured(self, plan: OffsetsPlan) -> bool:
        return self._own_topic_of(plan) == plan.own_topic

    def _own_topic_of(self, plan: OffsetsPlan) -> str:
        found = self._existing(plan)
        return (found.config.get(OWN_TOPIC) or "") if found else ""

    def _bring_back(self, change: GroupChange, plan: OffsetsPlan, *, watch: bool = True) -> str:
        """Give the connector the state that it had before, unless another person has given it one meanwhile."""
        connector, before = plan.look.connector, plan.look.target_state
        if plan.is_at_rest:
            return ""
        with change.step("start"):
            change.confirm("start")
            if plan.returns_to(self._target_state(connector)) is not None:
                resumes = before is TargetState.STARTED
                self.session.ask(lambda rest: rest.resume(connector) if resumes else rest.pause(connector))
            now = change.until(lambda: self._settled(plan), f"{connector} to be {before} again", self._settle_seconds)
            failed = self._watch(change, connector) if watch and now is TargetState.STARTED else ""
        self._report(f"{connector}: {failed or now}.")
        return failed

    def _watch(self, change: GroupChange, connector: str) -> str:
        """Watch a connector until its tasks have run for :data:`WATCH_SECONDS`.

        A task reads its offset when it starts, or at its first poll. If it does not understand it, it fails then.

        :returns: why it does not run; empty if it does.
        """
        begun = time.monotonic()
        running_since: float | None = None
        while True:
            now = time.monotonic()
            tasks = self._tasks(connector)
            if failure := _failure(tasks):
                return failure
            if tasks and all(task.state == "RUNNING" for task in tasks):
                running_since = running_since or now
                if now - running_since >= WATCH_SECONDS:
                    return ""
            elif self._target_state(connector) is not TargetState.STARTED:
                return ""  # another person has stopped, paused or deleted it
            else:
                running_since = None
            if now - begun >= _TASKS_SECONDS:
                states = ", ".join(f"task {task.number} is {task.state}" for task in tasks) or "it has no task"
                return f"{states} after {_TASKS_SECONDS:.0f} s"
            change.renew()
            time.sleep(PAUSE_SECONDS)

    def _tasks(self, connector: str) -> tuple[TaskStatus, ...]:
        status = self.session.ask(lambda rest: rest.statuses()).get(connector)
        return status.tasks if status else ()

    def _settled(self, plan: OffsetsPlan) -> TargetState | None:
        """The connector's state, once it has that in which it is left."""
        connector, wanted = plan.look.connector, plan.look.target_state
        now = self._target_state(connector)
        if now is not wanted:
            return now if plan.returns_to(now) is None else None
        status = self.session.ask(lambda rest: rest.statuses()).get(connector)
        is_there = status is not None and status.state == ("RUNNING" if wanted is TargetState.STARTED else "PAUSED")
        return now if is_there else None

    def _target_state(self, connector: str) -> TargetState:
        found = self._config().connectors.get(connector)
        return TargetState(found.target_state) if found else TargetState.ABSENT


def _require_nothing_elsewhere(writes: Iterable[Write]) -> None:
    """Go on only if a migration replaces nothing in another Kafka cluster.

    A group of the same name there may have a connector of the same name, whose tasks read what would be replaced.
    """
    replaced = sorted({w.topic for w in writes if is_elsewhere(w.topic) and w.changes and w.before is not None})
    if replaced:
        raise RefusedError(
            f"{replaced[0]}, in another Kafka cluster, already has offsets under keys of this connector: a "
            "connector of the same name may use them there.",
            remedy="Name another topic ('--to own --topic …').",
        )


def _known_ids(client: TransactionsClient, prefix: str) -> list[TransactionListing]:
    """The ids of a connector's tasks that the brokers know."""
    return [one for one in client.list(prefix) if task_number(one.transactional_id, prefix) is not None]


def _failure(tasks: Iterable[TaskStatus]) -> str:
    """Which task has failed, and why; empty if none has."""
    failed = next((task for task in tasks if task.state == "FAILED"), None)
    return f"task {failed.number} has failed: {name_failure(failed.trace)}" if failed else ""


def _touched(connector: str) -> RefusedError:
    return RefusedError(
        f"{connector} was started or configured while its offsets were being changed.",
        expected="a connector that stays stopped and unchanged until the change is over",
        remedy="Find out by whom. Then run the same command again: it stops the connector and resumes.",
    )
