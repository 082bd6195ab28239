"""Airflow's home in this process: a new folder, which is gone with the process.

Airflow reads it when it is first imported, so :mod:`tests.conftest` imports this module before any test does that.
Each process of xdist has one of its own, for they would share one database otherwise.
"""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import sys
import tempfile
from pathlib import Path

import tests.memory  # noqa: F401  or else this home would be the first folder on the disk

assert "airflow" not in sys.modules, "Airflow was imported before its home was set"

AIRFLOW_HOME = Path(tempfile.mkdtemp(prefix="eos-airflow-home-"))
atexit.register(shutil.rmtree, AIRFLOW_HOME, ignore_errors=True)
os.environ["AIRFLOW_HOME"] = str(AIRFLOW_HOME)
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"
os.environ["AIRFLOW__EOS__CONNECTION_FILES_FOLDERS"] = tempfile.gettempdir()  # labs and tmp_path are in it
os.environ["AIRFLOW__API_AUTH__JWT_SECRET"] = secrets.token_hex(64)
