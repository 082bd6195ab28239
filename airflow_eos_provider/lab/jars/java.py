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

#: For JVMs that live for seconds, Spark's drivers as well: the second compiler and a parallel collector cost half of a
#: start's CPU and never pay for themselves; their counters are not read.
SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")


def jvm_command(
    main_class: str,
    arguments: Sequence[str],
    *,
    class_path: str,
    heap_megabytes: int,
    marker: str,
    log_config: Path,
    options: Sequence[str] = (),
) -> list[str]:
    """The command that runs a main class, marked as the lab's (see :func:`ownership.marker`).

    :param log_config: configuration of the logging: log4j2's as XML, reload4j's as properties.
    """
    logging = "log4j.configuration" if log_config.suffix == ".properties" else "log4j2.configurationFile"
    return [
        str(java_program()),
        *SHORT_LIVED,
        "-Xshare:auto",
        f"-Xmx{heap_megabytes}m",
        marker,
        f"-D{logging}={log_config.as_uri()}",
        *options,
        "-cp",
        class_path,
        main_class,
        *arguments,
    ]


@lru_cache(maxsize=1)
def java_program() -> Path:
    """The ``java`` of JAVA_HOME, or else of PATH."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    where = f"in JAVA_HOME ({home})" if home else "on PATH"
    remedy = f"Install a JDK {REQUIRED_JAVA} or newer, and set JAVA_HOME or PATH."
    if found is None:
        raise ConfigurationError(f"There is no java {where}.", expected=f"a JDK {REQUIRED_JAVA}", remedy=remedy)
    try:
        release = java_release(version_text(found))
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigurationError(f"{found} does not run: {error}.", remedy=remedy) from error
    if release is None or release < REQUIRED_JAVA:
        raise ConfigurationError(
            f"{found} is {'of an unknown version' if release is None else f'Java {release}'}.",
            expected=f"Java {REQUIRED_JAVA} or newer",
            remedy=remedy,
        )
    return Path(found)


@lru_cache
def version_text(program: str) -> str:
    """What ``java -version`` prints: the release, and which JVM it is."""
    answer = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=60, check=False)
    return answer.stderr + answer.stdout


def java_release(version_text: str) -> int | None:
    """The feature release that ``java -version`` prints: 17 for ``"17.0.15"``, 8 for ``"1.8.0_402"``."""
    match = re.search(r'version "(?:1\.)?(\d+)', version_text)
    return int(match.group(1)) if match else None
