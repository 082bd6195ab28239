"""Writes the generated part of the reference pages: ``python -m tests.reference [PAGE]``.

Each page of :data:`PAGES` begins with text of its own; everything below :data:`MARK` is generated from commands,
docstrings and values. With a page's name, it is printed. ``tests/unit/test_reference.py`` fails if a page is outdated.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, replace
from functools import cache
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from airflow_eos_provider.interval.protocol import coordinator
from tests import reference_errors, reference_records, reference_reports
from tests.reference_text import Docstring, table

DOCS = Path(__file__).parent.parent / "docs"
MARK = "<!-- From here on written by `python -m tests.reference`, from the code. -->"

#: Packages whose ``__all__`` is public.
PACKAGES = (
    "airflow_eos_provider.interval",
    "airflow_eos_provider.interval.spark",
    "airflow_eos_provider.interval.sources",
    "airflow_eos_provider.dag_factories",
)

# Public names


def public_names() -> dict[str, list[tuple[str, Any]]]:
    """Module -> its public names with what they stand for."""
    found: dict[str, list[tuple[str, Any]]] = {}
    for name in PACKAGES:
        package = importlib.import_module(name)
        found[name] = [(public, getattr(package, public)) for public in package.__all__]
    for module in _airflow_modules():
        if public := list(_airflow_names(module)):
            found[module.__name__] = public
    return found


def _airflow_modules() -> Iterator[ModuleType]:
    from airflow_eos_provider.get_provider_info import get_provider_info

    info = get_provider_info()
    names = [
        name for kind in ("hooks", "operators", "sensors") for entry in info[kind] for name in entry["python-modules"]
    ]
    names += [entry["class-name"].rpartition(".")[0] for entry in info["task-decorators"]]
    names += [name.rpartition(".")[0] for name in info["notifications"]]
    return map(importlib.import_module, [*names, "airflow_eos_provider.assets.intervals"])


def _airflow_names(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Hooks, operators, sensors and notifiers; the functions of the modules that exist for them."""
    from airflow.sdk import BaseHook, BaseNotifier, BaseOperator

    functions = {"interval_run_task": "@task.interval_run", "interval_asset": "", "completed_intervals": ""}
    for name, value in vars(module).items():
        if getattr(value, "__module__", "") != module.__name__ or name.startswith("_"):
            continue
        if name in functions:
            yield functions[name] or name, value
        elif isinstance(value, type) and issubclass(value, (BaseHook, BaseOperator, BaseNotifier)):
            yield name, value


def _api(names: dict[str, list[tuple[str, Any]]]) -> Iterator[str]:
    for module, members in names.items():
        yield f"\n## `{module}`\n"
        for name, value in members:
            yield from _entry(name, value)


def _entry(name: str, value: Any) -> Iterator[str]:
    described = Docstring.of(value)
    yield f"\n### `{name}`\n"
    yield f"\n{described.summary}\n"
    yield from table("parameter | default | meaning", _parameters(name, value))
    if described.returns:
        yield f"\nReturns {described.returns}\n"
    if described.raises:
        yield "\n"
        yield from (f"* raises `{error}`: {text}\n" for error, text in described.raises)
    if isinstance(value, type):
        yield from table("method | what it does", _methods(value))


def _ours(value: Any) -> list[Any]:
    """The thing itself and, of a class, its bases of this package that have parameters of their own."""
    if not isinstance(value, type):
        return [value]
    return [
        base
        for base in value.__mro__
        if base.__module__.startswith("airflow_eos_provider.") and (base is value or "__init__" in vars(base))
    ]


def _parameters(name: str, value: Any) -> Iterator[tuple[str, ...]]:
    unknown: list[str] = []
    parameters: dict[str, inspect.Parameter] = {}
    texts: dict[str, str] = {}
    for part in _ours(value):
        parameters = {**inspect.signature(part).parameters, **parameters}
        texts = {**Docstring.of(part).parameters, **texts}
    stars = [named for named in parameters.values() if named.kind is named.VAR_KEYWORD]
    for parameter in [*(named for named in parameters.values() if named not in stars), *stars]:
        mark = {parameter.VAR_KEYWORD: "**", parameter.VAR_POSITIONAL: "*"}.get(parameter.kind, "")
        text = texts.get(parameter.name) or _of_base(value, parameter)
        if text is None:
            unknown.append(parameter.name)
        yield f"`{mark}{parameter.name}`", _default(parameter), text or ""
    yield from ((f"`{other}`", "", texts[other]) for other in texts if other not in parameters)
    if unknown:
        raise ValueError(f"{name}: no ':param …:' in the docstring for {', '.join(unknown)}")


def _of_base(value: Any, parameter: inspect.Parameter) -> str | None:
    """What ``**kwargs`` of a class are: the arguments of the first base that is not of this package."""
    if parameter.kind is not parameter.VAR_KEYWORD or not isinstance(value, type):
        return None
    base = next(base for base in value.__mro__ if not base.__module__.startswith("airflow_eos_provider."))
    return f"passed to `{base.__name__}`"


def _default(parameter: inspect.Parameter) -> str:
    default = parameter.default
    if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
        return ""
    if default is parameter.empty:
        return "required"
    if callable(default) or type(default).__name__ == "_HAS_DEFAULT_FACTORY_CLASS":
        return ""
    return (
        f"`{default!r}`" if isinstance(default, (str, int, float, bool, tuple)) or default is None else f"`{default}`"
    )


def _methods(value: type) -> Iterator[tuple[str, ...]]:
    for name, member in vars(value).items():
        if name.startswith("_") or not (inspect.isfunction(member) or isinstance(member, (classmethod, property))):
            continue
        if getattr(value.__mro__[1], name, None) is not None and value.__mro__[1] is not object:
            continue  # overrides what the base class documents
        yield f"`{name}`", Docstring.of(member).summary.split("\n\n")[0]


# Commands


@cache
def commands() -> Mapping[str, Any]:
    """Every command and group of ``eos`` by its words; groups come before what is in them."""
    import typer

    from airflow_eos_provider.cli.app import app

    return dict(_commands(typer.main.get_command(app), "eos"))


def _commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    yield path, command
    context = command.context_class(command, info_name=path)
    for name in command.list_commands(context) if hasattr(command, "commands") else ():
        yield from _commands(command.resolve_command(context, [name])[1], f"{path} {name}")


def _cli() -> Iterator[str]:
    for path, command in commands().items():
        yield f"\n## `{path}`\n\n{_prose(command.help or '')}\n"
        yield from table("argument or option | default | meaning", map(_option, command.params))


def _prose(text: str) -> str:
    """A help text, without the examples, which are shown as they are."""
    return "\n\n".join(" ".join(part.split()) for part in re.split(r"\n\s*\n", text.replace("\b", "").strip()))


def _option(option: Any) -> tuple[str, ...]:
    if option.param_type_name == "argument":
        name, required = option.metavar or option.name.upper(), ""
        if not option.required and not name.startswith("["):
            name = f"[{name}]"
    else:
        name = " ".join(filter(None, (", ".join((*option.opts, *option.secondary_opts)), option.metavar)))
        required = "required" if option.required else ""
    unset = option.default in (None, False, (), "") or callable(option.default)
    default = required or ("" if unset else f"`{option.default}`")
    variable = f" (`${option.envvar}`)" if option.envvar else ""
    return f"`{name}`", default, f"{option.help or ''}{variable}"


# Rights


def _acls() -> Iterator[str]:
    from airflow_eos_provider.acls.rules import (
        ConnectorFacts,
        IntervalFacts,
        WorkerFacts,
        connector_rules,
        interval_rules,
        worker_rules,
    )
    from airflow_eos_provider.connect.mode import Mode

    worker = WorkerFacts("<group>", "<config topic>", "<offsets topic>", "<status topic>", brokers=(2, 7))
    connector = ConnectorFacts(
        "<group>", "<connector>", 1, "<its offsets topic>", ("<topic>",), creates_topics=True, brokers=(2, 7)
    )
    modes = list(Mode)
    parts = {
        "A worker": {mode: worker_rules(replace(worker, mode=mode)) for mode in modes},
        "The clients of a source connector": {mode: connector_rules(replace(connector, mode=mode)) for mode in modes},
        "An interval run": dict.fromkeys(modes, interval_rules(IntervalFacts("<group>", "<pipeline>", ("<topic>",)))),
    }
    for title, by_mode in parts.items():
        yield f"\n## {title}\n"
        rows = (_right(rule, next(mode for mode in modes if rule in by_mode[mode])) for rule in by_mode[Mode.ENABLED])
        yield from table("who | right | on | from mode | what for | without it", rows)
    yield from _tool_acls()


def _right(rule: Any, first: str) -> tuple[str, ...]:
    mode = "any" if first == "disabled" else first
    return rule.role, *_operation(rule), mode, rule.why, rule.without.replace("<", "&lt;")


def _operation(rule: Any) -> tuple[str, str]:
    begins = "beginning with " if rule.pattern == "prefixed" else ""
    hint = "" if rule.is_required else " (not required)"
    return f"{rule.operation}{hint}", f"{rule.resource} {begins}`{rule.name}`"


def _tool_acls() -> Iterator[str]:
    from airflow_eos_provider.acls.tool_rules import ToolFacts
    from airflow_eos_provider.changes.declared import VERBS

    topics = ("<config topic>", "<offsets topic>", "<status topic>", "<own offsets topics>")
    facts = ToolFacts("<group>", "", topics[0], topics, (topics[1], topics[3]), ("<group>-<connector>-",), topics[3:])
    yield "\n## `eos` itself\n"
    rows, shown = [], dict[tuple[tuple[str, str], ...], str]()
    for verb, needs in VERBS.items():
        rights = tuple(dict.fromkeys(map(_operation, needs(facts))))
        same = shown.setdefault(rights, verb)
        rows += [(f"`eos {verb}`", *right) for right in (rights if same == verb else [(f"as `eos {same}`", "")])]
    yield from table("command | right | on", rows)


# Changes


def _changes() -> Iterator[str]:
    from airflow_eos_provider import dag_factories
    from airflow_eos_provider.changes.declared import CHANGES

    for name, change in CHANGES.items():
        dag = getattr(dag_factories, change.dag)
        yield f"\n## {change.title}\n\n{change.summary} {change.details}\n"
        yield f"\n```sh\n{chr(10).join(change.examples)}\n```\n"
        yield f"\nIn Airflow: `{change.dag}`, or `{dag.plan_operator.__name__}` and `{dag.apply_operator.__name__}`.\n"
        yield from table("parameter | type | default | meaning", _fields(change.request))
        leaves = [leaf for leaf in left_behind() if name in leaf.verbs and "eos-rollout-" not in leaf.name]
        left = "; ".join(f"`{leaf.name}` ({leaf.end})" for leaf in leaves)
        journal = "its records in the group's journal" if change.takes_lease else ""
        yield f"\nLeaves behind: {'; '.join(filter(None, (left, journal)))}.\n"
        section = "an-interval-run" if change.brokers_only else "eos-itself"
        yield f"\nRights: `eos {name}` in [ACLs](acls.md#{section}).\n"


def _fields(request: type) -> Iterator[tuple[str, ...]]:
    from airflow_eos_provider.changes.change import kind_of, options

    for field, (option, each) in options(request).items():
        default = "required" if each.default is MISSING else f"`{each.default!r}`"
        yield f"`{field}`", kind_of(request, field).__name__, default, option.help


class Leaf(NamedTuple):
    """A row of docs/reference/left-behind.md.

    :param verbs: the commands that leave it; Airflow's operators do what these do.
    :param end: what ends it.
    """

    name: str
    verbs: list[str]
    end: str


@cache
def left_behind() -> list[Leaf]:
    """Everything that a command leaves behind."""
    lines = (DOCS / "reference/left-behind.md").read_text(encoding="utf-8").splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| `")]
    return [Leaf(name.strip("`"), verbs.split(", "), end.partition(";")[0]) for name, verbs, _, end in rows]


def journalled() -> set[str]:
    """The commands that write the group's journal, besides changes with a lease."""
    (leaf,) = (leaf for leaf in left_behind() if leaf.name.startswith("transactional id eos-rollout-"))
    return set(leaf.verbs)


# Findings of the preflight


def _findings() -> Iterator[str]:
    from airflow_eos_provider.preflight.findings import KINDS, STOPS_TASKS

    refuses = dict.fromkeys(STOPS_TASKS, " **Refuses a roll.**")
    rows = ((f"`{k.name}`", k.asks, k.fails, f"{k.why}.{refuses.get(k.name, '')}") for k in KINDS)
    yield from table("kind | asks | fails | what happens then", rows)


# Metrics


def _metrics() -> Iterator[str]:
    from airflow_eos_provider.metrics import METRICS

    rows = (
        (f"`{one.name}`", one.kind.value, one.unit, ", ".join(f"`{tag}`" for tag in one.tags), one.meaning)
        for one in METRICS
    )
    yield from table("name | type | unit | tags | what", rows)


# Settings


def _settings() -> Iterator[str]:
    from airflow_eos_provider.get_provider_info import get_provider_info

    info = get_provider_info()
    for section, content in info["config"].items():
        yield f"\n## Airflow's configuration, `[{section}]`\n\n{' '.join(content['description'].split())}\n"
        rows = (
            (
                f"`{name}`",
                option["type"],
                f"`{option['default']}`" if option.get("default") else "",
                option["description"],
            )
            for name, option in content["options"].items()
        )
        yield from table("option | type | default | meaning", rows)
    for connection in info["connection-types"]:
        yield f"\n## Connection `{connection['connection-type']}`\n"
        shown = connection.get("ui-field-behaviour", {})
        of_airflow = [
            (label, f"({name})", shown["placeholders"].get(name, ""))
            for name, label in shown.get("relabeling", {}).items()
        ]
        fields = connection.get("conn-fields", {}).items()
        own = [(field["label"], f"`{name}`", field.get("description") or "") for name, field in fields]
        yield from table("field | key of the extra | meaning", of_airflow + own)
    yield "\n## Variables of `eos`\n"
    options = (option for command in commands().values() for option in command.params)
    variables = {(f"`{each.envvar}`", f"`{each.opts[0]}`", each.help or "") for each in options if each.envvar}
    yield from table("variable | option | meaning", sorted(variables))


PAGES: dict[str, Callable[[], Iterable[str]]] = {
    "reference/acls.md": _acls,
    "reference/cli.md": _cli,
    "reference/python-api.md": lambda: _api(public_names()),
    "reference/changes.md": _changes,
    "reference/preflight-checks.md": _findings,
    "reference/metrics.md": _metrics,
    "reference/errors.md": reference_errors.page,
    "reference/formats.md": lambda: chain(reference_records.page(), reference_reports.page(commands().items())),
    "reference/configuration.md": _settings,
    "contributing/proof.md": lambda: ["\n", Docstring.of(coordinator).summary, "\n"],
}


def written(page: str) -> str:
    """A page as it should be: its own beginning, and what is written from the code."""
    own = (DOCS / page).read_text(encoding="utf-8").partition(MARK)[0]
    return f"{own}{MARK}\n{''.join(PAGES[page]())}"


if __name__ == "__main__":
    if sys.argv[1:]:
        print("".join(map(written, sys.argv[1:])))  # noqa: T201
    else:
        for page in PAGES:
            (DOCS / page).write_text(written(page), encoding="utf-8")
