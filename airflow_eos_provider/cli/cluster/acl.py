"""``eos acl``: checks, explains, grants and revokes rights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from airflow_eos_provider.acls.check import AclReport, check as check_rights
from airflow_eos_provider.acls.forms import Form, kafka_acls_lines, written
from airflow_eos_provider.acls.judge import RightFinding
from airflow_eos_provider.acls.read_rights import read_authorizer
from airflow_eos_provider.acls.rules import Rule, also_reached
from airflow_eos_provider.changes.change import read_request
from airflow_eos_provider.changes.rights.asked import AskedRights, asked_rights
from airflow_eos_provider.changes.rights.change import also_reaches
from airflow_eos_provider.changes.rights.rights_request import RightsRequest
from airflow_eos_provider.cli.client_options import client_properties
from airflow_eos_provider.cli.common import (
    console,
    load_cluster,
    print_lines,
    table,
    warn,
)
from airflow_eos_provider.cli.look import Found, add_look
from airflow_eos_provider.connect.cluster.description import exposed_file
from airflow_eos_provider.connect.connect_session import ConnectSession
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.data_text import counted, ranges
from airflow_eos_provider.errors import ConfigurationError, NotKnownError
from airflow_eos_provider.finding import Verdict
from airflow_eos_provider.kafka.acl_values import Pattern, Resource, require_principal
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.redaction import secrets_of
from airflow_eos_provider.stored import to_json

acl_app = typer.Typer(no_args_is_help=True, add_completion=False)

LoginsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--login",
        metavar="[PRINCIPAL=]FILE",
        help="Client properties of a principal, to try its rights with; may be repeated. The workers' own logins are "
        "taken from their files.",
    ),
]


FormOption = Annotated[Form, typer.Option("--form", help="Print the rights for another tool; exit code 0.")]
MissingOption = Annotated[bool, typer.Option("--missing", help="With --form: only rights that are missing.")]
WhatArgument = Annotated[
    str, typer.Argument(metavar="RULE|PRINCIPAL", help="A principal, or words of a rule: a connector, a name, Write.")
]


@add_look(
    acl_app,
    "check",
    "eos acl check",
    "eos acl check --login worker.properties",
    "eos acl check --connector orders --form strimzi  # print the rights for Strimzi",
    "eos acl check --form kafka-acls --missing --prefixed",
    request=RightsRequest,
)
def check(
    cluster: Path | None,
    form: FormOption = Form.TABLE,
    missing: MissingOption = False,
    login: LoginsOption = None,
    **given: Any,
) -> Found:
    """Check the rights that this cluster needs. Changes nothing; exit code 1 if one is missing, 5 if unknown.

    Where a principal's login is available, eos tries the right without side effects. Otherwise it reads the ACLs, which
    needs Describe on the cluster. -o wide shows every right and what it is for. Exit code 5 also if the brokers have no
    authorizer.
    """
    request = read_request(RightsRequest, given)
    with ConnectSession(load_cluster(cluster)) as session:
        asked = asked_rights(session, request, request.connectors)
        brokers = asked.session.kafka.settings.bootstrap_servers
        report = _report(asked, {} if form is not Form.TABLE else _logins(login or (), brokers))
        reached = also_reached(asked.rules, asked.facts.ids)
    if form is not Form.TABLE:
        acls = [each.rule.acl for each in report.findings if not missing or each.verdict is not Verdict.PASS]
        print_lines(written(acls, form, brokers))
        raise typer.Exit
    names = [str(each.rule) for each in report.lacking]
    code = 1 if report.lacking else 0 if report.is_known else NotKnownError.exit_code

    def show(wide: bool) -> None:
        if wide:
            _show(report.findings)
        _show_checked(report, brokers)
        for rule, also in reached.items():
            console.print(Text(also_reaches(rule, also), "yellow"), soft_wrap=True)
        for note in report.notes:
            console.print(Text(f"Note: {note.rstrip('.')}.", "dim"), soft_wrap=True)

    return Found(_document(report, request.mode, reached), names, show, code)


@add_look(
    acl_app,
    "explain",
    "eos acl explain User:connect",
    "eos acl explain connect-cluster-",
    "eos acl explain orders",
    request=RightsRequest,
)
def explain(cluster: Path | None, what: WhatArgument, **given: Any) -> Found:
    """Say what each right is for, and what fails without it, in the words that Connect logs. Changes nothing."""
    request = read_request(RightsRequest, given)
    with ConnectSession(load_cluster(cluster)) as session:
        rules = asked_rights(session, request, request.connectors).rules
    found = [rule for rule in rules if all(word in _words(rule) for word in what.lower().split())]
    if not found:
        raise ConfigurationError(
            f"No rule has {what!r}.",
            expected="a principal, a connector, a topic, an operation",
            remedy="See 'eos acl check -o wide'.",
        )

    def show(wide: bool) -> None:
        for rule in found:
            console.print(f"{rule}  ({rule.part})", style="bold", soft_wrap=True)
            console.print(f"  What for: {rule.why}.", soft_wrap=True)
            console.print(f"  Without it: {rule.without}", soft_wrap=True)

    return Found([_explained(rule) for rule in found], list(map(str, found)), show)


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
        **to_json(rule.acl),
        "of": rule.part,
        "required": rule.is_required,
        "why": rule.why,
        "without": rule.without,
    }


def _document(report: AclReport, mode: Mode, reached: Mapping[Rule, Sequence[str]]) -> dict[str, Any]:
    """As JSON. Scripts rely on the names."""
    return {
        "mode": str(mode),
        "authorizer": report.has_authorizer,
        "rules": [each.to_dict() for each in report.findings],
        "missing": len(report.lacking),
        "unknown": len(report.unknown),
        "also_reached": [{**to_json(rule.acl), "names": list(names)} for rule, names in reached.items()],
        "notes": list(report.notes),
        "not_known": list(report.gaps),
    }


def _show(found: Sequence[RightFinding]) -> None:
    """A part of the cluster after the other, with a row for each resource; a connector's ids in one."""

    def part(each: RightFinding) -> tuple[str, str]:
        return each.rule.principal, each.rule.part

    for (principal, whose), theirs in groupby(sorted(found, key=part), key=part):
        console.print(f"{principal}, {whose}", style="bold", soft_wrap=True)
        shown = table("", "  operations", "on", "what for", "not there")
        for place, findings in _places(theirs):
            why = "; ".join(dict.fromkeys(one.rule.why for one in findings))
            shown.add_row(f"  {_operations(findings)}", place, why, Text(_lacking_text(findings), "yellow"))
        console.print(shown)


def _places(found: Iterable[RightFinding]) -> list[tuple[str, list[RightFinding]]]:
    """What rules are about, with the findings of one of those that are alike: ids that differ in their number."""

    def place(each: RightFinding) -> tuple[str, str, str]:
        return str(each.rule.resource), str(each.rule.pattern), each.rule.name

    alike: dict[tuple[str, ...], list[tuple[str, list[RightFinding]]]] = {}
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


def _operations(found: Iterable[RightFinding]) -> str:
    return ", ".join(str(each.rule.operation) for each in found)


def _lacking_text(found: Sequence[RightFinding]) -> str:
    missing = _operations(each for each in found if each.verdict is Verdict.FAIL)
    unknown = _operations(each for each in found if each.verdict is Verdict.INCONCLUSIVE)
    return "; ".join(filter(None, (missing, unknown and f"not known: {unknown}")))


def _show_checked(report: AclReport, brokers: str) -> None:
    if not report.has_authorizer:
        console.print("The brokers have no authorizer: everybody may do everything, so there is nothing to check.")
        return
    for each in report.findings:
        if each.verdict is Verdict.PASS:
            continue
        kind = str(each.verdict) if each.rule.is_required else f"{each.verdict}, and not required"
        console.print(Text(f"{each.rule}  ({each.rule.part}): {kind}", "yellow"), soft_wrap=True)
        console.print(f"  By {each.source}: {each.found}.", soft_wrap=True)
        console.print(f"  Without it: {each.rule.without}", soft_wrap=True)
    if report.lacking:
        console.print("Run this to fix it (or 'eos acl grant'):", style="bold")
        for line in kafka_acls_lines([each.rule.acl for each in report.lacking if not each.denials], brokers):
            console.print(line, soft_wrap=True)
    allowed = [each for each in report.findings if each.verdict is Verdict.PASS]
    by = {source: len(list(them)) for source, them in groupby(sorted(str(each.source) for each in allowed))}
    sources = ", ".join(f"{number} by {source}" for source, number in by.items())
    console.print(
        f"{counted(len(allowed), 'right')} of {len(report.findings)} there" + (f": {sources}." if sources else ".")
    )
    if report.gaps:
        console.print(Text("Further rights may be needed: see the notes.", "yellow"))
