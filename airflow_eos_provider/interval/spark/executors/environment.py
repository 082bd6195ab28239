"""Looks at the Python that it runs in: interpreter, packages, brokers, Java.

Spark ships these functions by value (:mod:`~airflow_eos_provider.interval.spark.executor_survey`), so they import at
the head what every Python has, and the rest by name: a bare executor runs them, too.
"""

from __future__ import annotations

import importlib
import os
import platform
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

#: Limits of a question to the brokers and to Java, seconds.
_BROKER_SECONDS = 15.0
_JAVA_SECONDS = 30.0

#: An error's text is cut here, characters.
_LONGEST = 300


def look(modules: Sequence[str], client: Mapping[str, str] | None = None, stay: float = 0.0) -> dict[str, Any]:
    """What this Python has, by the fields of ``PythonLook``."""
    until = time.monotonic() + stay
    found = {name: _imported(name) for name in modules}
    place, host = _executor()
    document = {
        "place": place,
        "host": host,
        "interpreter": sys.executable,
        "python": platform.python_version(),
        "packages": {name: version for name, (version, _) in found.items() if version},
        "broken": {name: why for name, (version, why) in found.items() if not version},
        "brokers": None if client is None else _brokers(client),
    }
    time.sleep(max(0.0, until - time.monotonic()))
    return document


def java() -> str:
    """First line of ``java -version``, or why there is none."""
    home = os.environ.get("JAVA_HOME")
    program = f"{home}/bin/java" if home else shutil.which("java")
    if program is None:
        return "there is no java on PATH, and no JAVA_HOME"
    try:
        said = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=_JAVA_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    lines = [line for line in (said.stderr + said.stdout).splitlines() if "version" in line]
    return lines[0] if lines else f"{program} says no version"


def _command(pid: int) -> list[str]:
    """The words that a process was started with (Linux)."""
    with open(f"/proc/{pid}/cmdline", "rb") as command:  # noqa: PTH123
        return command.read().decode(errors="replace").split("\0")


def _executor() -> tuple[str, str]:
    """Id and host that the JVM above this process was started with as an executor; a local session's is ``driver``."""
    pid = os.getppid()
    while pid > 1:
        try:
            words = _command(pid)
            with open(f"/proc/{pid}/stat", "rb") as state:  # noqa: PTH123
                pid = int(state.read().rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            break
        if "--executor-id" in words[:-1]:
            named = dict(pairwise(words))
            return f"executor {named['--executor-id']}", named.get("--hostname") or socket.gethostname()
    return "executor driver", socket.gethostname()


def _imported(name: str) -> tuple[str, str]:
    """Version of a module, and why it cannot be imported."""
    try:
        module = importlib.import_module(name)
    except BaseException as error:  # whatever a broken package does
        return "", _words(error)
    version = str(getattr(module, "__version__", ""))
    return version, "" if version else f"{getattr(module, '__file__', name)} has no version"


def _brokers(client: Mapping[str, str]) -> str:
    try:
        settings = importlib.import_module("airflow_eos_provider.kafka.settings.kafka_settings").KafkaSettings(client)
        admin = importlib.import_module("airflow_eos_provider.kafka.admin.client").Admin(settings)
    except BaseException as error:
        return f"they cannot be asked: {_words(error)}"
    try:
        return str(len(admin.cluster(_BROKER_SECONDS, "asking for the brokers").ports))
    except importlib.import_module("airflow_eos_provider.errors").EosError as error:
        return str(error.found)
    finally:
        admin.close()


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:_LONGEST]
