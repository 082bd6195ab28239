"""The JVM that runs the broker and the workers: where it is, and how it is started."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from airflow_eos_provider.errors import ConfigurationError

#: Kafka 4's brokers and workers need this release of Java.
REQUIRED_JAVA = 17

#: Half the start-up time of the default: the second compiler is not worth waiting for in a lab.
_FAST_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")


def jvm_command(
    main_class: str,
    arguments: Sequence[str],
    *,
    class_path: str,
    heap_megabytes: int,
    marker: str,
    log_config: Path | None = None,
) -> list[str]:
    """The command that runs a main class.

    :param class_path: as ``java -cp`` takes it.
    :param heap_megabytes: the largest heap.
    :param marker: the argument that marks the lab's processes (``ownership.marker``).
    :param log_config: configuration of the logging: log4j2's as XML, reload4j's as properties.
    """
    logging = []
    if log_config is not None:
        name = "log4j.configuration" if log_config.suffix == ".properties" else "log4j2.configurationFile"
        logging = [f"-D{name}={log_config.as_uri()}"]
    return [
        str(java_program()),
        *_FAST_START,
        f"-Xmx{heap_megabytes}m",
        marker,
        *logging,
        "-cp",
        class_path,
        main_class,
        *arguments,
    ]


@lru_cache(maxsize=1)
def java_program() -> Path:
    """The ``java`` of JAVA_HOME, or else of PATH.

    :raises ConfigurationError: there is none, or it is older than :data:`REQUIRED_JAVA`.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    where = f"in JAVA_HOME ({home})" if home else "on PATH"
    remedy = f"Install a JDK {REQUIRED_JAVA} or newer, and set JAVA_HOME or PATH."
    if found is None:
        raise ConfigurationError(f"There is no java {where}.", expected=f"a JDK {REQUIRED_JAVA}", remedy=remedy)
    try:
        answer = subprocess.run([found, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigurationError(f"{found} does not run: {error}.", remedy=remedy) from error
    release = java_release(answer.stderr + answer.stdout)
    if release is None or release < REQUIRED_JAVA:
        raise ConfigurationError(
            f"{found} is {'of an unknown version' if release is None else f'Java {release}'}.",
            expected=f"Java {REQUIRED_JAVA} or newer",
            remedy=remedy,
        )
    return Path(found)


def java_release(version_text: str) -> int | None:
    """The feature release that ``java -version`` prints: 17 for ``"17.0.15"``, 8 for ``"1.8.0_402"``."""
    match = re.search(r'version "(?:1\.)?(\d+)', version_text)
    return int(match.group(1)) if match else None
