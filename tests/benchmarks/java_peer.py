"""Peers that are Java: a source file of ``tests/java`` run with the lab's jars, in a JVM as its users start it."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from airflow_eos_provider.lab.jars.jars import class_path, ensure_jars
from airflow_eos_provider.lab.jars.java import java_program

SOURCES = Path(__file__).parents[1] / "java"


def run_java(source: str, arguments: Sequence[object], *, timeout_seconds: float) -> list[list[float]]:
    """The lines of numbers that the program prints; other lines, which loggers write, are left out."""
    command = [str(java_program()), "-Xmx1g", "-cp", class_path(ensure_jars()), str(SOURCES / source)]
    said = subprocess.run(
        [*command, *map(str, arguments)], capture_output=True, text=True, timeout=timeout_seconds, check=False
    )
    found = []
    for line in said.stdout.splitlines():
        try:
            found.append([float(word) for word in line.split()])
        except ValueError:
            continue
    if said.returncode != 0 or not found:
        raise AssertionError(f"{source} ended with {said.returncode}:\n{said.stdout[-2000:]}\n{said.stderr[-2000:]}")
    return found
