"""A lab's broker for commands that want a cluster file, but ask no worker."""

from __future__ import annotations

import json

from airflow_eos_provider.lab.lab import Lab


def describe(lab: Lab) -> Lab:
    """Write the cluster file of a lab without workers; the worker that it names is not there."""
    worker = {"url": "http://127.0.0.1:1"}
    content = {"bootstrap_servers": lab.bootstrap_servers, "group_id": lab.group_id, "workers": [worker]}
    lab.cluster_file.write_text(json.dumps(content), encoding="utf-8")  # which is YAML, too
    return lab
