"""The options of commands: those of a request, and those that all commands have."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING
from pathlib import Path
from typing import Annotated, Any

import typer

from airflow_eos_provider.changes.change import Option, kind_of, options
from airflow_eos_provider.cli.common import ClusterOption, JsonOption
from airflow_eos_provider.cli.completion import complete_connector, complete_run
from airflow_eos_provider.output import OutputOption


def _complete_verb() -> list[str]:
    from airflow_eos_provider.changes.declared import VERBS

    return list(VERBS)


_COMPLETIONS: dict[str, Callable[..., Any]] = {
    "connector": complete_connector,
    "run": complete_run,
    "verb": _complete_verb,
}

#: Options by their names: annotation and default.
Options = Mapping[str, tuple[Any, Any]]

COMMON: Options = {"cluster": (ClusterOption, None), "output": (OutputOption, None), "as_json": (JsonOption, False)}


def with_options(run: Callable[..., None], taken: Options, help: str) -> Callable[..., None]:
    """A command with these options; the function takes each by its name."""
    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in taken.items()
    ]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    run.__doc__ = help
    return run


def own_options(function: Callable[..., Any]) -> dict[str, tuple[Any, Any]]:
    """The options that a function names itself."""
    parameters = inspect.signature(function, eval_str=True).parameters.values()
    return {each.name: (each.annotation, each.default) for each in parameters if each.kind is not each.VAR_KEYWORD}


def options_of(request: type, *, for_look: bool = False) -> dict[str, tuple[Any, Any]]:
    """The options of a request's fields."""
    found: dict[str, tuple[Any, Any]] = {}
    for name, (option, each) in options(request).items():
        if for_look and not option.looks:
            continue
        kind = kind_of(request, name)
        is_required = each.default is MISSING
        annotation: Any = list[str] if kind is tuple else Path if option.completes == "file" else kind
        if not is_required and kind is not bool and each.default in ((), "", None):
            annotation = annotation | None
        default = inspect.Parameter.empty if is_required else each.default or (False if kind is bool else None)
        found[name] = (Annotated[annotation, _info(name, option, kind)], default)
    return found


def _info(name: str, option: Option, kind: type) -> Any:
    more: dict[str, Any] = {"help": option.help, "metavar": option.metavar or None, "min": option.least}
    more["envvar"] = option.envvar or None
    if option.completes in _COMPLETIONS:
        more["autocompletion"] = _COMPLETIONS[option.completes]
    if option.argument:
        more["metavar"] = more["metavar"] or (name.removesuffix("s") if kind is tuple else name).upper()
        return typer.Argument(**more)
    if kind is str:
        more["metavar"] = more["metavar"] or "TEXT"
    return typer.Option(option_name(name, option, kind), **more)


def option_name(name: str, option: Option, kind: type) -> str:
    """How an option is given on the command line, such as ``--config-topic``."""
    return option.flag or f"--{(name.removesuffix('s') if kind is tuple else name).replace('_', '-')}"
