"""What Airflow finds: the application and its entry in the navigation."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata

from airflow import plugins_manager

from airflow_eos_provider.get_provider_info import get_provider_info
from airflow_eos_provider.ui.plugin import URL_PREFIX, ExactlyOncePlugin


def test_airflow_finds_the_plugin_by_its_entry_point_and_by_the_providers_description() -> None:
    (entry,) = [
        entry for entry in metadata.entry_points(group="airflow.plugins") if "airflow_eos_provider" in entry.value
    ]
    (described,) = get_provider_info()["plugins"]
    assert entry.value.replace(":", ".") == described["plugin-class"]
    assert entry.load() is ExactlyOncePlugin
    assert entry.name == described["name"] == ExactlyOncePlugin.name


def test_airflow_mounts_the_application_and_shows_its_entry() -> None:
    apps, _ = plugins_manager.get_fastapi_plugins()
    assert [app["url_prefix"] for app in apps if app["name"] == "Exactly once"] == [URL_PREFIX]
    (view,) = [view for view in ExactlyOncePlugin.external_views if view["name"] == "Exactly once"]
    assert view["href"] == "exactly-once/", "relative: Airflow may be below a path"
    assert view["url_route"] == "exactly-once"


def test_what_the_page_needs_is_not_imported_by_processes_that_show_none() -> None:
    code = (
        "import sys, airflow_eos_provider.ui.plugin;"
        "print([name for name in sys.modules if name.startswith('airflow_eos_provider.ui.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.splitlines()[-1] == "['airflow_eos_provider.ui.plugin']"
