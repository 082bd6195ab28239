"""The generated part of ``docs/reference/configuration.md``: Airflow's settings, connection fields, variables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from airflow_eos_provider.get_provider_info import get_provider_info


def page(cell: Callable[[str], str], commands: Iterable[Any]) -> Iterator[str]:
    """The written part of the page.

    :param cell: makes a text one that a table's cell may hold.
    :param commands: all of them.
    """
    info = get_provider_info()
    for section, content in info["config"].items():
        yield f"\n## Airflow's configuration, `[{section}]`\n\n{' '.join(content['description'].split())}\n"
        yield "\n| option | type | default | meaning |\n|---|---|---|---|\n"
        for name, option in content["options"].items():
            default = f"`{option['default']}`" if option.get("default") not in (None, "") else ""
            yield f"| `{name}` | {option['type']} | {default} | {cell(option['description'])} |\n"
    for connection in info["connection-types"]:
        yield f"\n## Connection `{connection['connection-type']}`\n"
        yield "\n| field | key of the extra | meaning |\n|---|---|---|\n"
        shown = connection.get("ui-field-behaviour", {})
        for name, label in shown.get("relabeling", {}).items():
            yield f"| {label} | ({name}) | {cell(shown['placeholders'].get(name, ''))} |\n"
        for name, field in connection.get("conn-fields", {}).items():
            yield f"| {field['label']} | `{name}` | {cell(field.get('description') or '')} |\n"
    yield "\n## Variables of `eos`\n\n| variable | option | meaning |\n|---|---|---|\n"
    yield from sorted({_variable(cell, option) for command in commands for option in command.params} - {""})


def _variable(cell: Callable[[str], str], option: Any) -> str:
    variable = getattr(option, "envvar", None)
    return f"| `{variable}` | `{option.opts[0]}` | {cell(option.help or '')} |\n" if variable else ""
