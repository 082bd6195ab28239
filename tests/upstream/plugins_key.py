"""The plugins that a provider names in its ``provider_info`` are not loaded.

They are looked at where ``[core] lazy_discover_providers`` is off only, which by default is on. Its other keys act,
and no word is said about this one. An entry point ``airflow.plugins`` loads the same class.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.upstream.own_airflow import said_by
from tests.upstream.shown import StartLab

MODULE = """
from airflow.plugins_manager import AirflowPlugin

class ByKey(AirflowPlugin):
    name = "by_key"

class ByEntryPoint(AirflowPlugin):
    name = "by_entry_point"
"""
INFO = """
def provider_info():
    plugins = [{"name": "by_key", "plugin-class": "probe.ByKey"}]
    return {"package-name": "probe", "name": "Probe", "description": "A probe.", "plugins": plugins}
"""
ENTRY_POINTS = """
[apache_airflow_provider]
provider_info = probe_info:provider_info

[airflow.plugins]
by_entry_point = probe:ByEntryPoint
"""
CODE = """
from airflow.plugins_manager import _get_plugins
from airflow.providers_manager import ProvidersManager
print("provider", "probe" in ProvidersManager().providers)
print("plugins", *sorted(plugin.name for plugin in _get_plugins()[0] if plugin.name.startswith("by_")))
"""


def show(start: StartLab) -> str:
    with tempfile.TemporaryDirectory(prefix="eos-upstream-plugins-") as text:
        folder = Path(text)
        described = folder / "probe-1.0.dist-info"
        described.mkdir()
        (folder / "probe.py").write_text(MODULE, encoding="utf-8")
        (folder / "probe_info.py").write_text(INFO, encoding="utf-8")
        (described / "METADATA").write_text("Metadata-Version: 2.1\nName: probe\nVersion: 1.0\n", encoding="utf-8")
        (described / "entry_points.txt").write_text(ENTRY_POINTS, encoding="utf-8")
        eager = said_by(CODE, folder, PYTHONPATH=text, AIRFLOW__CORE__LAZY_DISCOVER_PROVIDERS="False").splitlines()
        found = said_by(CODE, folder, PYTHONPATH=text).splitlines()
    assert "plugins by_entry_point by_key" in eager, eager  # or the key would be spelt wrong here
    assert "provider True" in found, found
    assert "plugins by_entry_point" in found, found
    return "the provider was found, its key 'plugins' loaded nothing; the entry point did"
