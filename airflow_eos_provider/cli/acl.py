"""``eos acl``: who needs which rights, what is missing, and what grants it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from airflow_eos_provider.acls.asked import AskedRights, WantedRights, asked_rights, interval_facts
from airflow_eos_provider.acls.check import AclReport
from airflow_eos_provider.acls.check import check as check_rights
from airflow_eos_provider.acls.facts import Principals
from airflow_eos_provider.acls.forms import Form, kafka_acls_lines, written
from airflow_eos_provider.acls.grant import (
    AclPlan,
    acl_document,
)
from airflow_eos_provider.acls.judge import Answer, Finding
from airflow_eos_provider.acls.look import read_authorizer
from airflow_eos_provider.acls.rules import Rule, also_reached
from airflow_eos_provider.acls.tool_rules import VERBS
from airflow_eos_provider.cli.client_options import client_properties
from airflow_eos_provider.cli.common import (
    ClusterOption,
    HashOption,
    JsonOption,
    console,
    load_cluster,
    print_lines,
    require_enough_digits,
    table,
    warn,
    width_for,
)
from airflow_eos_provider.cli.completion import complete_connector
from airflow_eos_provider.cli.examples import examples
from airflow_eos_provider.connect.cluster.description import exposed_file
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.data_text import counted, ranges
from airflow_eos_provider.errors import ConfigurationError, NotKnownError
from airflow_eos_provider.interval.group_pipelines import pipelines_on_record
from airflow_eos_provider.kafka.acl_values import Pattern, Resource, require_principal
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.output import Output, OutputOption, print_document, print_json
from airflow_eos_provider.redaction import secrets_of

#: So many names are shown of what a prefix reaches; the JSON has all.
_SHOWN = 3

acl_app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Rights (ACLs) for exactly-once: who needs which and why, what is missing; grant and revoke them.",
)

WorkerOption = Annotated[
    str | None,
    typer.Option("--worker", metavar="PRINCIPAL", help="The workers' principal; default: as their files say."),
]
ProducerOption = Annotated[
    str | None,
    typer.Option("--producer", metavar="PRINCIPAL", help="Of connectors' producers; default: as files and overrides."),
]
ConsumerOption = Annotated[
    str | None, typer.Option("--consumer", metavar="PRINCIPAL", help="Of the consumers that read their offsets.")
]
AdminOption = Annotated[
    str | None, typer.Option("--admin", metavar="PRINCIPAL", help="Of their admin clients, which fence.")
]
ModeOption = Annotated[Mode, typer.Option("--mode", help="The mode that the workers have, or are to have.")]
PrefixedOption = Annotated[
    bool, typer.Option("--prefixed", help="One rule for all ids of a connector; what else it reaches is named.")
]
TasksMaxOption = Annotated[
    bool,
    typer.Option("--for-tasks-max", help="Ids for as many tasks as tasks.max allows, not only for those there are."),
]
ConnectorsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--connector", autocompletion=complete_connector, help="Only of this connector's clients; may be repeated."
    ),
]
PipelinesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--pipeline",
        metavar="GROUP/NAME[:TOPIC,…]",
        help="Also of the interval runs of this pipeline, which write these topics; may be repeated.",
    ),
]
SparkOption = Annotated[
    str, typer.Option("--interval-principal", metavar="PRINCIPAL", help="Of interval runs.", show_default=True)
]
VerbsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--verb",
        metavar="VERB",
        autocompletion=lambda: list(VERBS),
        help="Also what eos itself needs for this, as in 'fence' or 'topics check'; may be repeated.",
    ),
]
LoginsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--login",
        metavar="[PRINCIPAL=]FILE",
        help="Client properties of a principal, to try its rights with; may be repeated. The workers' own logins are "
        "taken from their files.",
    ),
]


@acl_app.command(
    "check",
    epilog=examples(
        "eos acl check",
        "eos acl check --login worker.properties",
        "eos acl check --connector orders --form strimzi  # print the rights for Strimzi",
        "eos acl check --form kafka-acls --missing --prefixed",
    ),
)
def check(
    form: Annotated[Form, typer.Option("--form", help="Print the rights for another tool; ends with 0.")] = Form.TABLE,
    missing: Annotated[bool, typer.Option("--missing", help="With --form: only rights that are missing.")] = False,
    login: LoginsOption = None,
    worker: WorkerOption = None,
    producer: ProducerOption = None,
    consumer: ConsumerOption = None,
    admin: AdminOption = None,
    mode: ModeOption = Mode.ENABLED,
    prefixed: PrefixedOption = False,
    for_tasks_max: TasksMaxOption = False,
    connector: ConnectorsOption = None,
    pipelines: PipelinesOption = None,
    interval_principal: SparkOption = "User:spark",
    verb: VerbsOption = None,
    cluster: ClusterOption = None,
    output: OutputOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check the rights that this cluster needs. Changes nothing; exit code 1 if one is missing, 5 if unknown.

    Where a principal's login is available, eos tries the right without side effects. Otherwise it reads the ACLs, which
    needs Describe on the cluster. -o wide shows every right and what it is for. Exit code 5 also if the brokers have no
    authorizer.
    """
    wanted = WantedRights(
        Principals(worker, producer, consumer, admin),
        mode,
        connector or (),
        interval_facts(pipelines or (), interval_principal),
        verb or (),
        prefixed=prefixed,
        for_tasks_max=for_tasks_max,
    )
    with asked_rights(load_cluster(cluster), wanted) as asked:
        brokers = asked.session.kafka.settings.bootstrap_servers
        report = _report(asked, {} if form is not Form.TABLE else _logins(login or (), brokers))
        reached = also_reached(asked.rules, asked.facts.ids)
    if form is not Form.TABLE:
        acls = [each.rule.acl for each in report.findings if not missing or each.answer is not Answer.ALLOWED]
        print_lines(written(acls, form, brokers))
        return
    document = _document(report, wanted.mode, report.findings, reached)
    names = [str(each.rule) for each in report.lacking]
    if not print_document(document, names, output, as_json=as_json):
        with width_for(output):
            if output is Output.WIDE:
                _show(report.findings, output)
            _show_checked(report, brokers)
        _show_reached(reached)
        _show_notes(report)
    if report.lacking:
        raise typer.Exit(1)
    if not report.is_known:
        raise typer.Exit(NotKnownError.exit_code)


@acl_app.command(
    "explain",
    epilog=examples("eos acl explain User:connect", "eos acl explain connect-cluster-", "eos acl explain orders"),
)
def explain(
    what: Annotated[
        str,
        typer.Argument(metavar="RULE|PRINCIPAL", help="A principal, or words of a rule: a connector, a name, Write."),
    ],
    worker: WorkerOption = None,
    producer: ProducerOption = None,
    consumer: ConsumerOption = None,
    admin: AdminOption = None,
    mode: ModeOption = Mode.ENABLED,
    pipelines: PipelinesOption = None,
    interval_principal: SparkOption = "User:spark",
    verb: VerbsOption = None,
    cluster: ClusterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say what each right is for, and what fails without it, in the words that Connect logs. Changes nothing."""
    wanted = WantedRights(
        Principals(worker, producer, consumer, admin),
        mode,
        (),
        interval_facts(pipelines or (), interval_principal),
        verb or (),
    )
    with asked_rights(load_cluster(cluster), wanted) as asked:
        found = [rule for rule in asked.rules if all(word in _words(rule) for word in what.lower().split())]
    if not found:
        raise ConfigurationError(
            f"No rule has {what!r}.",
            expected="a principal, a connector, a topic, an operation",
            remedy="See 'eos acl check -o wide'.",
        )
    if as_json:
        print_json([_explained(rule) for rule in found])
        return
    for rule in found:
        console.print(f"{rule}  ({rule.part})", style="bold", soft_wrap=True)
        console.print(f"  What for: {rule.why}.", soft_wrap=True)
        console.print(f"  Without it: {rule.without}", soft_wrap=True)


@acl_app.command("grant", epilog=examples("eos acl grant", "eos acl grant --prefixed --hash 3f1c09ab77d2"))
def grant(
    plan_hash: HashOption = None,
    worker: WorkerOption = None,
    producer: ProducerOption = None,
    consumer: ConsumerOption = None,
    admin: AdminOption = None,
    mode: ModeOption = Mode.ENABLED,
    prefixed: PrefixedOption = False,
    for_tasks_max: TasksMaxOption = False,
    connector: ConnectorsOption = None,
    pipelines: PipelinesOption = None,
    interval_principal: SparkOption = "User:spark",
    verb: VerbsOption = None,
    cluster: ClusterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create the ACLs that are missing. Without --hash: show the plan only. It takes Alter on the cluster.

    What the ACLs give already is not given twice. A right that an ACL denies is refused: no other ACL can give it.
    """
    require_enough_digits(plan_hash)
    wanted = WantedRights(
        Principals(worker, producer, consumer, admin),
        mode,
        connector or (),
        interval_facts(pipelines or (), interval_principal),
        verb or (),
        prefixed=prefixed,
        for_tasks_max=for_tasks_max,
    )
    with asked_rights(load_cluster(cluster), wanted) as asked:
        made = asked.grant()
        applied = _carry_out(made, asked, plan_hash)
        reached = asked.also_reached(made)
    _show_change(made, applied=applied, as_json=as_json)
    if not as_json:
        _show_reached(reached)


@acl_app.command(
    "revoke",
    epilog=examples(
        "eos acl revoke --mode enabled",
        "eos acl revoke --connector gone",
        "eos acl revoke --connector a --even-if-needed",
    ),
)
def revoke(
    plan_hash: HashOption = None,
    even_if_needed: Annotated[
        bool,
        typer.Option(
            "--even-if-needed",
            help="Also what workers and connectors need that are there, other pipelines of the group, and other verbs.",
        ),
    ] = False,
    worker: WorkerOption = None,
    producer: ProducerOption = None,
    consumer: ConsumerOption = None,
    admin: AdminOption = None,
    mode: ModeOption = Mode.ENABLED,
    prefixed: PrefixedOption = False,
    for_tasks_max: TasksMaxOption = False,
    connector: ConnectorsOption = None,
    pipelines: PipelinesOption = None,
    interval_principal: SparkOption = "User:spark",
    verb: VerbsOption = None,
    cluster: ClusterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete ACLs that 'grant' would create, and no others. Without --hash: show the plan only.

    What the workers need in the mode that their files say, and the connectors that there are, is kept; so is what
    other pipelines of the group (--pipeline) and other verbs (--verb) share with those that are named. Of a connector
    that is gone (--connector) it deletes those on the ids of its tasks.
    """
    require_enough_digits(plan_hash)
    wanted = WantedRights(
        Principals(worker, producer, consumer, admin),
        mode,
        (),
        interval_facts(pipelines or (), interval_principal),
        verb or (),
        prefixed=prefixed,
        for_tasks_max=for_tasks_max,
    )
    with asked_rights(load_cluster(cluster), wanted) as asked:
        made = asked.revocation(connector or (), on_record=pipelines_on_record, even_if_needed=even_if_needed)
        applied = _carry_out(made, asked, plan_hash)
    _show_change(made, applied=applied, as_json=as_json)


def _carry_out(made: AclPlan, asked: AskedRights, plan_hash: str | None) -> bool:
    if plan_hash is None:
        return False
    made.require(plan_hash)
    made.apply(asked.session.kafka)
    return True


def _report(asked: AskedRights, logins: Mapping[str, KafkaSettings]) -> AclReport:
    own = asked.session.kafka.settings
    ours = {own.principal: own} if own.principal else {}
    authorizer = read_authorizer(asked.session.kafka)
    return check_rights(
        asked.rules, authorizer, {**asked.facts.logins, **ours, **logins}, asked.facts.notes, asked.gaps
    )


def _logins(given: Iterable[str], bootstrap_servers: str) -> dict[str, KafkaSettings]:
    found = {}
    for text in given:
        principal, _, file = text.rpartition("=")
        properties = client_properties((), Path(file), {})
        warn(exposed_file(Path(file), holds_secrets=bool(secrets_of(properties))))
        settings = KafkaSettings({"bootstrap.servers": bootstrap_servers, **properties})
        if not (principal or settings.principal):
            raise ConfigurationError(
                f"The login in {file} does not say who it is.", expected=f"--login User:<name>={file}"
            )
        principal = principal or str(settings.principal)
        require_principal(principal, f"The principal of the login in {file}")
        found[principal] = settings
    return found


def _words(rule: Rule) -> str:
    return f"{rule} {rule.part}".lower()


def _explained(rule: Rule) -> dict[str, Any]:
    return {
        **acl_document(rule.acl),
        "of": rule.part,
        "required": rule.is_required,
        "why": rule.why,
        "without": rule.without,
    }


def _document(
    report: AclReport, mode: Mode, found: Iterable[Finding], reached: Mapping[Rule, Sequence[str]]
) -> dict[str, Any]:
    """As JSON. Scripts rely on the names."""
    return {
        "mode": str(mode),
        "authorizer": report.has_authorizer,
        "rules": [each.to_dict() for each in found],
        "missing": len(report.lacking),
        "unknown": len(report.unknown),
        "also_reached": [{**acl_document(rule.acl), "names": list(names)} for rule, names in reached.items()],
        "notes": list(report.notes),
        "not_known": list(report.gaps),
    }


def _show(found: Sequence[Finding], output: Output | None) -> None:
    """A part of the cluster after the other, with a row for each resource; a connector's ids in one."""

    def part(each: Finding) -> tuple[str, str]:
        return each.rule.principal, each.rule.part

    for (principal, whose), theirs in groupby(sorted(found, key=part), key=part):
        console.print(f"{principal}, {whose}", style="bold", soft_wrap=True)
        shown = table()
        for column in ("  operations", "on", *(("what for",) if output is Output.WIDE else ()), "not there"):
            shown.add_column(column, overflow="fold")
        for place, findings in _places(theirs):
            why = ("; ".join(dict.fromkeys(one.rule.why for one in findings)),) if output is Output.WIDE else ()
            shown.add_row(f"  {_operations(findings)}", place, *why, Text(_lacking_text(findings), "yellow"))
        console.print(shown)


def _places(found: Iterable[Finding]) -> list[tuple[str, list[Finding]]]:
    """What rules are about, with the findings of one of those that are alike: ids that differ in their number."""

    def place(each: Finding) -> tuple[str, str, str]:
        return str(each.rule.resource), str(each.rule.pattern), each.rule.name

    alike: dict[tuple[str, ...], list[tuple[str, list[Finding]]]] = {}
    for (resource, pattern, name), findings in groupby(sorted(found, key=place), key=place):
        each = sorted(findings, key=lambda one: str(one.rule.operation))
        numbered = resource == Resource.TRANSACTIONAL_ID and pattern == Pattern.LITERAL
        stem = name.rstrip("0123456789") if numbered else f"{name}{'*' if pattern == Pattern.PREFIXED else ''}"
        key = (resource, pattern, stem, _operations(each), _lacking_text(each))
        alike.setdefault(key, []).append((name, each))
    rows = []
    for (resource, _, stem, *_), them in alike.items():
        names = [name for name, _ in them]
        numbers = sorted(int(name.removeprefix(stem)) for name in names) if len(names) > 1 else []
        said = f"{stem}{ranges(numbers)}" if numbers else (names[0] if names[0].startswith(stem) else stem)
        rows.append((f"{resource} {said}", them[0][1]))
    return rows


def _operations(found: Iterable[Finding]) -> str:
    return ", ".join(str(each.rule.operation) for each in found)


def _lacking_text(found: Sequence[Finding]) -> str:
    missing = _operations(each for each in found if each.answer is Answer.MISSING)
    unknown = _operations(each for each in found if each.answer is Answer.UNKNOWN)
    return "; ".join(filter(None, (missing, unknown and f"not known: {unknown}")))


def _show_checked(report: AclReport, brokers: str) -> None:
    if not report.has_authorizer:
        console.print("The brokers have no authorizer: everybody may do everything, and nothing is to be checked.")
        return
    for each in report.findings:
        if each.answer is Answer.ALLOWED:
            continue
        kind = str(each.answer) if each.rule.is_required else f"{each.answer}, and not required"
        console.print(Text(f"{each.rule}  ({each.rule.part}): {kind}", "yellow"), soft_wrap=True)
        console.print(f"  By {each.source}: {each.because}.", soft_wrap=True)
        console.print(f"  Without it: {each.rule.without}", soft_wrap=True)
    if report.lacking:
        console.print("What mends it (or 'eos acl grant'):", style="bold")
        for line in kafka_acls_lines([each.rule.acl for each in report.lacking if not each.denials], brokers):
            console.print(line, soft_wrap=True)
    allowed = [each for each in report.findings if each.answer is Answer.ALLOWED]
    by = {source: len(list(them)) for source, them in groupby(sorted(str(each.source) for each in allowed))}
    sources = ", ".join(f"{number} by {source}" for source, number in by.items())
    console.print(
        f"{counted(len(allowed), 'right')} of {len(report.findings)} there" + (f": {sources}." if sources else ".")
    )
    if report.gaps:
        console.print(Text("Not known whether further rights are needed: see the notes.", "yellow"))


def _show_change(made: AclPlan, *, applied: bool, as_json: bool) -> None:
    if as_json:
        print_json({**made.to_dict(), "applied": applied})
        return
    sign = {"acl grant": "green"}.get(made.kind, "red")
    for line in made.lines():
        console.print(line, style=sign, soft_wrap=True)
    for line in made.everybody:
        console.print(Text(f"! {line}", "yellow"), soft_wrap=True)
    for acl in made.kept:
        console.print(f"kept, since it is needed: {acl}", soft_wrap=True)
    if not made.acls:
        console.print("Nothing to do.")
    elif applied:
        console.print("Done.")
    else:
        todo = f"Nothing is changed yet. To do it: the same command with --hash {made.short_hash}"
        console.print(todo, style="bold", soft_wrap=True)


def _show_reached(reached: Mapping[Rule, Sequence[str]]) -> None:
    for rule, names in reached.items():
        shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
        console.print(
            Text(f"The prefix {rule.name} of {rule.principal} also reaches {shown}.", "yellow"), soft_wrap=True
        )


def _show_notes(report: AclReport) -> None:
    for note in report.notes:
        console.print(Text(f"Note: {note.rstrip('.')}.", "dim"), soft_wrap=True)
