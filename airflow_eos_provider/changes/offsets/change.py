"""The declarations of changes of source offsets."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from airflow_eos_provider.acls.tool_rules import offsets_rights
from airflow_eos_provider.changes.change import Change, Done, Plan, option, read_request
from airflow_eos_provider.errors import ConfigurationError, NothingDoneError
from airflow_eos_provider.offsets.user_json import parse_where, read_file
from airflow_eos_provider.offsets.verbs.offsets_request import OffsetsRequest, Verb, Wanted, parse_offsets, parse_one

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from airflow_eos_provider.connect.connect_session import ConnectSession
    from airflow_eos_provider.journal.group_change import GroupChange
    from airflow_eos_provider.offsets.verbs.apply import ConnectorReport, OffsetsChanger
    from airflow_eos_provider.offsets.verbs.offsets_plan import OffsetsPlan

#: What each of these commands does with the connector; part of their help.
_STEPS = (
    "The connector is stopped, its transactional ids are fenced, the records are written in one transaction and read "
    "back, and the connector gets its former state again. Its tasks are then watched for a moment: exit code 1 if one "
    "fails. If the command is killed, run it again to resume."
)


class Whose(StrEnum):
    """Which topic is to have a connector's offsets."""

    OWN = "own"
    GLOBAL = "global"


R = TypeVar("R", bound="DataclassInstance")


def _topic(setting: str) -> Any:
    return option(f"The workers' {setting}; default: from their files.", "")


def _connector() -> Any:
    help = "The connector whose offsets are changed, such as orders."
    return option(help, title="Connector", argument=True, completes="connector")


def _where(help: str) -> Any:
    return option(help, "", title="Only these source partitions", metavar="JSON")


def _absent() -> Any:
    help = "The connector need not exist: it is created later, and starts there."
    return option(help, False, title="The connector need not exist")


@dataclass(frozen=True, slots=True)
class ResetRequest:
    """Which offsets are removed."""

    connector: str = _connector()
    where: str = _where('Only source partitions with these members, as a JSON object: {"filename": "in.txt"}.')
    config_topic: str = _topic("config.storage.topic")
    offsets_topic: str = _topic("offset.storage.topic")


@dataclass(frozen=True, slots=True)
class AlterRequest:
    """Which source partitions get which offsets."""

    connector: str = _connector()
    file: str = option(
        "JSON with the offsets, as PATCH /connectors/<name>/offsets takes it.", "", metavar="PATH", completes="file"
    )
    offsets: str = option(
        'The same as text: [{"partition": {"filename": "in.txt"}, "offset": {"position": 0}}], with null for an offset '
        "that is to be removed.",
        "",
        title="New offsets",
        metavar="JSON",
    )
    offset: str = option("One offset, as a JSON object; null to remove it.", "", title="One new offset", metavar="JSON")
    partition: str = option(
        "The source partition of that offset, as a JSON object.", "", title="Source partition", metavar="JSON"
    )
    where: str = _where("Set that offset for source partitions with these members, as a JSON object.")
    each: bool = option(
        "Set that offset for every source partition that has one.", False, title="Every source partition", flag="--all"
    )
    unlike: bool = option(
        "Also an offset whose members, types or source partition differ from the connector's present ones.",
        False,
        title="Unlike the present offsets",
    )
    absent: bool = _absent()
    config_topic: str = _topic("config.storage.topic")
    offsets_topic: str = _topic("offset.storage.topic")

    def __post_init__(self) -> None:
        """Refuse what contradicts itself."""
        lists, ones = [self.file, self.offsets], [self.partition, self.where, self.each]
        is_list = len(list(filter(None, lists))) == 1 and not any([self.offset, *ones])
        if not (is_list or (self.offset and not any(lists) and len(list(filter(None, ones))) == 1)):
            raise ConfigurationError(
                "It is not clear which offsets are wanted.",
                expected="--file or --offsets; or --offset and one of --partition, --where and --all",
            )


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """Which offsets are taken, from where."""

    connector: str = option(
        "The connector; none with --all.", "", title="Connector", argument=True, completes="connector"
    )
    file: str = option(
        "A file that 'eos offsets backup' wrote, on the machine that carries it out.",
        "",
        title="Backup",
        argument=True,
        completes="file",
    )
    source: str = option(
        "Take the offsets of this connector, of the group or of the backup; it may be deleted.",
        "",
        title="From this connector",
        flag="--from",
        metavar="CONNECTOR",
        completes="connector",
    )
    each: bool = option(
        "Every connector with offsets in the backup, one after the other.", False, title="All of it", flag="--all"
    )
    from_elsewhere: bool = option(
        "Even if the backup is from another group, Kafka cluster or topic of that name.", False, title="From elsewhere"
    )
    absent: bool = _absent()
    config_topic: str = _topic("config.storage.topic")
    offsets_topic: str = _topic("offset.storage.topic")

    def __post_init__(self) -> None:
        """Refuse what contradicts itself."""
        named = len([name for name in (self.connector, self.file) if name])
        wanted = 1 if self.each else 2  # with --all on the command line the one name is that of the backup
        if not (self.connector and not self.each if self.source else named == wanted):
            raise ConfigurationError(
                "It is not clear what is to be restored.",
                expected="a connector and a backup; --all and a backup; or a connector and --from",
            )
        if self.source == self.connector and not self.file:
            raise ConfigurationError(
                f"{self.connector} has its own offsets already.", expected="--from another connector, or with a backup"
            )


@dataclass(frozen=True, slots=True)
class MigrateRequest:
    """Whose offsets are moved, and where to."""

    connector: str = _connector()
    to: Whose = option("Into a topic of its own, or into the workers' global one.", title="To")  # noqa: RUF009
    topic: str = option("The topic of its own; default: <group>-<connector>-offsets.", "", title="Own topic")
    config_topic: str = _topic("config.storage.topic")
    offsets_topic: str = _topic("offset.storage.topic")

    def __post_init__(self) -> None:
        """Refuse what contradicts itself."""
        if self.topic and self.to == Whose.GLOBAL:
            raise ConfigurationError("--topic names a topic of its own.", expected="--to own with --topic")


@dataclass(frozen=True, slots=True)
class PruneRequest:
    """Whose leftovers are removed."""

    connector: str = option(
        "One deleted connector; default: every deleted connector that left offsets.",
        "",
        title="Connector",
        argument=True,
    )
    config_topic: str = _topic("config.storage.topic")
    offsets_topic: str = _topic("offset.storage.topic")


class OffsetsChange(Change[R]):
    """A change of the source offsets of a connector, or of several, one after the other."""

    rights = (offsets_rights,)
    none: ClassVar[str] = ""  #: why there is nothing to do if no connector is meant

    @abstractmethod
    def _wanted(self, changer: OffsetsChanger, request: R) -> tuple[list[OffsetsRequest], list[str]]:
        """What is wanted of each connector, and further lines of the plan."""

    def plan(self, session: ConnectSession, request: R) -> Plan:
        """The plan. Every connector's is made before the first one is stopped."""
        from airflow_eos_provider.offsets.verbs.offsets_plan import OFFSETS_OF

        changer = self._changer(session, asdict(request))
        wanted, notes = self._wanted(changer, request)
        plans = [changer.plan(each) for each in wanted]
        due = [each for each in plans if not each.nothing_to_do]
        names = ", ".join(each.connector for each in due or plans)
        nothing = f"The offsets of {names} are as asked for." if plans else self.none
        return Plan(
            self.name,
            changer.group_id,
            about=names,
            question=f"{self.name.split()[-1].capitalize()} the source offsets of {names} in Kafka Connect group "
            f"{changer.group_id}?",
            lines=(*(line for each in due or plans for line in each.lines()), *notes),
            content={OFFSETS_OF: {each.connector: each.content() for each in due}},
            request=asdict(request),
            nothing="" if due else nothing,
        )

    def apply(self, session: ConnectSession, plan: Plan, act: GroupChange, report: Callable[[str], None]) -> Done:
        changer, plans = self._changer(session, plan.request, report), _plans(plan)
        done: list[ConnectorReport] = []
        for each in plans:
            act.scope = f"{each.connector}: " if len(plans) > 1 else ""
            is_over = act.scope and act.is_done("write") and act.is_done("start")
            try:
                if done and not act.has_begun:  # that of the first one was made a moment ago
                    each.require_unmoved(changer.plan(each.request))
                done.append(changer.done_before(each) if is_over else changer.carry_out(each, act))
            except NothingDoneError:  # it ends the change: the same command would make a new plan, for all
                if done:
                    report(f"Done for {', '.join(one.connector for one in done)}. Change the others by name.")
                raise
        return Done.of_connectors(done)

    def done_before(self, session: ConnectSession, plan: Plan) -> Done:
        """Its hash is that of this one change: it names the change of the connector before it."""
        changer = self._changer(session, plan.request)
        return Done.of_connectors(list(map(changer.done_before, _plans(plan))))

    def moved(self, plan: Plan, now: Plan) -> str:
        """Offsets may hold secrets, and this is written into the journal: so without the lines of the plan."""
        before, after = ({each.connector: each for each in _plans(one)} for one in (plan, now))
        if before.keys() != after.keys():
            return now.nothing or f"it is for {', '.join(after)}"
        both = [(before[name], after[name]) for name in before]
        return "; ".join(first.moved(second) for first, second in both if first.content() != second.content())

    def takes_up(self, request: R, unfinished: Plan) -> bool:
        return read_request(type(request), unfinished.request) == request

    def _changer(
        self, session: ConnectSession, request: Mapping[str, Any], report: Callable[[str], None] = lambda line: None
    ) -> OffsetsChanger:
        from airflow_eos_provider.connect.topics.internal_topics import CONFIGS, OFFSETS, read_worker_files
        from airflow_eos_provider.offsets.verbs.apply import OffsetsChanger

        files = read_worker_files(session.cluster)
        topics = files.common(CONFIGS, request["config_topic"]), files.common(OFFSETS, request["offsets_topic"])
        return OffsetsChanger(session, *topics, report)


def _plans(plan: Plan) -> list[OffsetsPlan]:
    from airflow_eos_provider.offsets.verbs.offsets_plan import OFFSETS_OF, OffsetsPlan
    from airflow_eos_provider.stored import from_json

    return [from_json(OffsetsPlan, content) for content in plan.content[OFFSETS_OF].values()]


class Reset(OffsetsChange[ResetRequest]):
    """The removal of a connector's offsets."""

    name = "offsets reset"
    title = "Reset source offsets"
    summary = "Remove a connector's offsets: it starts from the beginning."
    details = _STEPS
    request = ResetRequest
    examples = (
        "eos offsets reset orders",
        "eos offsets reset orders --plan 3f1c09ab77d2 --reason CHG-4711",
    )
    dag = "offsets_reset_dag"

    def _wanted(self, changer: OffsetsChanger, request: ResetRequest) -> tuple[list[OffsetsRequest], list[str]]:
        return [OffsetsRequest(Verb.RESET, request.connector, where=parse_where(request.where or None))], []


class Alter(OffsetsChange[AlterRequest]):
    """Other offsets for source partitions."""

    name = "offsets alter"
    title = "Alter source offsets"
    summary = "Give source partitions other offsets."
    details = (
        "--file and --offsets have several offsets. --offset is for the source partition of --partition, for each "
        "match of --where, or for --all. An offset is written under the key that the connector's tasks look for, "
        "regardless of its spelling. The connector checks the new offsets first. The other steps are the same as in "
        "'eos offsets reset'."
    )
    request = AlterRequest
    examples = (
        'eos offsets alter orders --partition \'{"filename": "/data/in.txt"}\' --offset \'{"position": 0}\'',
        'eos offsets alter orders --where \'{"cluster": "eu"}\' --offset null',
        "eos offsets alter orders --file wanted.json --plan 3f1c09ab77d2",
    )
    dag = "offsets_alter_dag"

    def _wanted(self, changer: OffsetsChanger, request: AlterRequest) -> tuple[list[OffsetsRequest], list[str]]:
        where = parse_where(request.where or None)
        if request.where and not where:
            raise ConfigurationError("--where is empty.", remedy="Say --all for every source partition.")
        if request.file:
            wanted = parse_offsets(read_file(Path(request.file)), request.file)
        elif request.offsets:
            wanted = parse_offsets(request.offsets, "offsets")
        else:
            partition = parse_one(request.partition, "--partition") if request.partition else None
            wanted = (Wanted(partition, parse_one(request.offset, "--offset")),)
        asked = OffsetsRequest(
            Verb.ALTER,
            request.connector,
            where=where,
            wanted=wanted,
            each=request.each or bool(where),
            unlike=request.unlike,
            absent=request.absent,
        )
        return [asked], []


class Restore(OffsetsChange[RestoreRequest]):
    """The offsets of a backup, or of another connector."""

    name = "offsets restore"
    title = "Restore source offsets"
    summary = "Set a connector's offsets from a backup, or from another connector."
    details = (
        "Offsets that came after the backup are removed. With --from, the other connector keeps its offsets; with "
        "--from and FILE, the backup may be of another group. The steps are the same as for 'eos offsets reset'. With "
        "--all, every plan is made before the first connector is stopped, and nothing changes if one is refused."
    )
    request = RestoreRequest
    examples = (
        "eos offsets restore orders before.jsonl",
        "eos offsets restore --all before.jsonl --yes",
        "eos offsets restore orders-v2 --from orders-v1",
    )
    dag = "offsets_restore_dag"
    none = "The backup has no offset of a connector that exists."

    def _wanted(self, changer: OffsetsChanger, request: RestoreRequest) -> tuple[list[OffsetsRequest], list[str]]:
        from airflow_eos_provider.offsets.seen import backup

        file, absent = str(Path(request.file).absolute()) if request.file else "", request.absent
        if request.source:
            return [OffsetsRequest(Verb.COPY, request.connector, source=request.source, file=file, absent=absent)], []
        names, gone = [request.connector], list[str]()
        if request.each:
            file = file or str(Path(request.connector).absolute())
            saved, existing = backup.read(Path(file)).connectors_with_offsets(), changer.config().connectors
            names, gone = [name for name in saved if name in existing], [name for name in saved if name not in existing]
        wanted = [
            OffsetsRequest(Verb.RESTORE, name, file=file, from_elsewhere=request.from_elsewhere, absent=absent)
            for name in names
        ]
        return wanted, [f"Skipped, because they do not exist: {', '.join(gone)}."] if gone else []


class Migrate(OffsetsChange[MigrateRequest]):
    """The move of a connector's offsets into another topic."""

    name = "offsets migrate"
    title = "Migrate source offsets"
    summary = "Move a connector's offsets into a topic of its own, or back."
    details = (
        "The topic is created where it is missing; the connector's offsets.storage.topic is changed while it is "
        "stopped. The other steps are those of 'eos offsets reset'."
    )
    request = MigrateRequest
    examples = (
        "eos offsets migrate orders --to own",
        "eos offsets migrate orders --to global --plan 3f1c09ab77d2",
    )
    dag = "offsets_migrate_dag"

    def _wanted(self, changer: OffsetsChanger, request: MigrateRequest) -> tuple[list[OffsetsRequest], list[str]]:
        from airflow_eos_provider.connect.topics.internal_topics import own_topic_name
        from airflow_eos_provider.kafka.topics import require_topic_name

        own = request.topic or own_topic_name(changer.group_id, request.connector)
        if request.to is Whose.GLOBAL:
            own = ""
        else:
            require_topic_name(own, remedy="Name the connector's own topic with --topic.")
        return [OffsetsRequest(Verb.MIGRATE, request.connector, own_topic=own)], []


class Prune(OffsetsChange[PruneRequest]):
    """The removal of what deleted connectors have left."""

    name = "offsets prune"
    title = "Prune source offsets"
    summary = (
        "Remove the offsets of deleted connectors. Otherwise a new connector of the same name would continue from them."
    )
    details = (
        "Also shows other leftovers of such connectors. Transactions that they left open are ended. Only the global "
        "topic is searched. If no connector names an own topic any longer, delete the topic with Kafka's own tools. "
        "If a prune is unfinished, naming one of its connectors, or none, resumes all of it."
    )
    request = PruneRequest
    examples = ("eos offsets prune", "eos offsets prune orders-v1 --yes")
    dag = "offsets_prune_dag"
    none = "Every offset belongs to a connector that exists."

    def _wanted(self, changer: OffsetsChanger, request: PruneRequest) -> tuple[list[OffsetsRequest], list[str]]:
        if request.connector:
            return [OffsetsRequest(Verb.PRUNE, request.connector)], []
        left = changer.leftovers()
        lines = [f"  {each.connector}: {line}" for each in left.values() for line in each.lines()]
        notes = ["Deleted connectors have also left:", *lines] if lines else []
        return [OffsetsRequest(Verb.PRUNE, name) for name in changer.deleted(left)], notes

    def takes_up(self, request: PruneRequest, unfinished: Plan) -> bool:
        """Without a connector it is for all, so it resumes the prune of one, too; with one, a prune that has it."""
        from airflow_eos_provider.offsets.verbs.offsets_plan import OFFSETS_OF

        begun = read_request(PruneRequest, unfinished.request)
        is_in_it = request.connector in ("", *unfinished.content[OFFSETS_OF])
        return is_in_it and replace(request, connector="") == replace(begun, connector="")


ALTER, RESET, RESTORE, MIGRATE, PRUNE = OFFSETS_CHANGES = Alter(), Reset(), Restore(), Migrate(), Prune()
