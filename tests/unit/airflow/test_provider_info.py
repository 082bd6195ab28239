"""Airflow accepts what the package says about itself."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import airflow
import jsonschema
import pytest

from airflow_eos_provider.get_provider_info import get_provider_info
from airflow_eos_provider.hooks.shown_extra import HOST_COMMANDS_OPTION

AIRFLOW = Path(airflow.__path__[0])


def schema(name: str) -> dict[str, Any]:
    return json.loads((AIRFLOW / name).read_text(encoding="utf-8"))


def test_airflows_schema_accepts_the_provider_info() -> None:
    jsonschema.validate(get_provider_info(), schema("provider_info.schema.json"))


def test_the_stricter_schema_of_provider_files_accepts_the_connection_form() -> None:
    connection_types = schema("provider.yaml.schema.json")["properties"]["connection-types"]
    jsonschema.validate(get_provider_info()["connection-types"], connection_types)


def test_the_hook_and_the_connection_type_name_each_other() -> None:
    described = get_provider_info()["connection-types"][0]
    module, _, name = described["hook-class-name"].rpartition(".")
    hook = getattr(importlib.import_module(module), name)
    assert hook.conn_type == described["connection-type"] == "kafka_connect"
    assert hook.hook_name == described["hook-name"]


@pytest.mark.parametrize("kind", ["hooks", "operators", "sensors", "triggers"])
def test_every_module_that_is_named_can_be_imported(kind: str) -> None:
    modules = [module for entry in get_provider_info()[kind] for module in entry["python-modules"]]
    assert modules
    for module in modules:
        importlib.import_module(module)


def test_airflow_offers_the_connection_type_with_its_form() -> None:
    from airflow.providers_manager import ProvidersManager

    manager = ProvidersManager()
    assert manager.hooks["kafka_connect"].hook_name == "Kafka Connect"
    assert "extra__kafka_connect__workers" in manager.connection_form_widgets
    assert manager.field_behaviours["kafka_connect"]["relabeling"]["host"] == "REST URL"


def test_each_field_of_the_connection_is_explained_with_an_example() -> None:
    described = get_provider_info()["connection-types"][0]
    for name, field in described["conn-fields"].items():
        assert field["label"] != name
        assert field["description"].endswith("."), name
        assert "such as" in field["description"], name
    shown = described["ui-field-behaviour"]
    assert shown["placeholders"].keys() == shown["relabeling"].keys()


def test_airflow_offers_the_decorator() -> None:
    from airflow.sdk import task

    from airflow_eos_provider.decorators.interval_run import interval_run_task

    assert task.interval_run is interval_run_task


def test_airflow_knows_the_option_and_that_it_is_off() -> None:
    from airflow.sdk.configuration import conf

    assert conf.getboolean("eos", HOST_COMMANDS_OPTION) is False
