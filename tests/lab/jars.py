"""The jars that tests need besides the lab's, and how all jars are locked.

``python -m tests.lab.jars lock NAME`` writes a lock, ``… fetch NAME`` fills the cache.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

from airflow_eos_provider.lab.jars.ivy import CONFIGURATION, Artifact, retrieve, run_ivy
from airflow_eos_provider.lab.jars.jars import JarLock, ensure_jars, lock_file, sha256

#: The modules that a lab of a version is made of; everything else in a lock follows from them. kafka-tools has
#: ProducerPerformance and TransactionsCommand, the test jar has MonitorableSourceConnector (exactly-once, many tasks).
ROOTS: Mapping[str, tuple[str, ...]] = {
    "4.3.1": (
        "org.apache.kafka:kafka_2.13:4.3.1",
        "org.apache.kafka:connect-runtime:4.3.1",
        "org.apache.kafka:connect-file:4.3.1",
        "org.apache.kafka:connect-basic-auth-extension:4.3.1",
        "org.apache.kafka:connect-mirror:4.3.1",
        "org.apache.kafka:kafka-tools:4.3.1",
        "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",
    ),
    # Older workers only: the broker is that of DEFAULT_VERSION. They log by reload4j.
    "3.9.2": (
        "org.apache.kafka:connect-runtime:3.9.2",
        "org.apache.kafka:connect-file:3.9.2",
        "org.slf4j:slf4j-reload4j:1.7.36",
    ),
    "3.8.1": (
        "org.apache.kafka:connect-runtime:3.8.1",
        "org.apache.kafka:connect-file:3.8.1",
        "org.slf4j:slf4j-reload4j:1.7.36",
    ),
    # Before KIP-618: a group with such a worker is refused.
    "3.2.3": (
        "org.apache.kafka:connect-runtime:3.2.3",
        "org.apache.kafka:connect-file:3.2.3",
        "org.slf4j:slf4j-reload4j:1.7.36",
    ),
}
EXTRAS: Mapping[str, tuple[str, ...]] = {
    version: (f"org.apache.kafka:connect-runtime:{version}:test",) for version in ROOTS
}

#: Connectors for a plugin folder of their own, fetched only where they are asked for by name.
PLUGINS: Mapping[str, tuple[str, ...]] = {
    "debezium-postgres-3.5.0.Final": ("io.debezium:debezium-connector-postgres:3.5.0.Final",),
}

#: Cluster managers that Spark runs on in tests. What they need besides is among Spark's own jars.
CLUSTERS: Mapping[str, tuple[str, ...]] = {
    "hadoop-yarn-3.5.0": (
        "org.apache.hadoop:hadoop-client-minicluster:3.5.0",
        "org.bouncycastle:bcpkix-jdk18on:1.82",
        "org.bouncycastle:bcprov-jdk18on:1.82",
        "org.bouncycastle:bcutil-jdk18on:1.82",
    ),
}

#: Sources that Spark reads in tests, as far as they have a build for its version. What they need besides is among
#: Spark's own jars.
SOURCES: Mapping[str, tuple[str, ...]] = {
    "spark-sources-4.2.0": (
        "org.apache.commons:commons-pool2:2.13.1",
        "org.apache.kafka:kafka-clients:3.9.2",
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.2.0",
        "org.postgresql:postgresql:42.7.7",
    ),
}

#: Old consumers with their tools. 2.1 is the oldest client that Kafka 4 lets in (KIP-896).
CONSUMERS: Mapping[str, tuple[str, ...]] = {
    "kafka-2.1.0": ("org.apache.kafka:kafka_2.12:2.1.0", "org.slf4j:slf4j-reload4j:1.7.36"),
}

MODULES: Mapping[str, tuple[str, ...]] = {**ROOTS, **PLUGINS, **CLUSTERS, **SOURCES, **CONSUMERS}

#: What brings along all that it needs.
_WHOLE = {**ROOTS, **PLUGINS, **CONSUMERS}

#: A worker gives these to its plugins, whatever they bring along.
_OF_THE_WORKER = ("org.apache.kafka", "org.slf4j")


def file_of(name: str) -> Path:
    """The file of a lock."""
    return lock_file(name) if name in ROOTS else Path(__file__).parent / "locks" / f"{name}.lock"


def lock_of(name: str) -> JarLock:
    """The committed lock of this name."""
    return JarLock.read(_title(name), file_of(name))


def _title(name: str) -> str:
    return f"Kafka {name}" if name in ROOTS else name


def jars_of(name: str) -> Path:
    """The folder with the jars of this name, every one checked."""
    return ensure_jars(lock_of(name), progress=_tell)


def text_of(name: str, lock: JarLock) -> str:
    """The content of a lock's file."""
    head = [
        f"# The jars of the lab with {lock.title}, each with its SHA-256.",
        f"# Made by: python -m tests.lab.jars lock {name}",
    ]
    return "\n".join(head + lock.lines) + "\n"


def make_lock(name: str) -> JarLock:
    """Resolve the modules of this name anew and lock what they need (a minute or two)."""
    with tempfile.TemporaryDirectory(prefix="eos-lock-") as scratch:
        folder = Path(scratch)
        exact = [Artifact.parse(text) for text in (*EXTRAS.get(name, ()), *(() if name in _WHOLE else MODULES[name]))]
        if exact:
            retrieve(exact, folder)
        jars = exact + (_resolved(MODULES[name], folder) if name in _WHOLE else [])
        if name in PLUGINS:
            jars = [jar for jar in jars if jar.organisation not in _OF_THE_WORKER]
        return JarLock(_title(name), {jar: _digest(folder / jar.file_name) for jar in jars})


def _resolved(modules: Iterable[str], folder: Path) -> list[Artifact]:
    """Fetch modules with all that they need; what that is."""
    lines = []
    for wanted in map(Artifact.parse, modules):
        lines.append(
            f'<dependency org="{wanted.organisation}" name="{wanted.name}" rev="{wanted.revision}"'
            f' conf="{CONFIGURATION}->default"/>'
        )
    with tempfile.TemporaryDirectory() as work:
        run_ivy("", "".join(lines), folder, Path(work))
        report = ElementTree.parse(Path(work) / "cache" / f"lab-lab-{CONFIGURATION}.xml")
    found = []
    for module in report.iter("module"):
        for revision in module.iter("revision"):
            for artifact in revision.iter("artifact"):
                if not revision.get("evicted") and artifact.get("status") != "failed":
                    classifier = next((v for k, v in artifact.attrib.items() if k.endswith("classifier")), "")
                    names = module.get("organisation", ""), artifact.get("name", ""), revision.get("name", "")
                    found.append(Artifact(*names, classifier))
    return found


def _digest(file: Path) -> str:
    digest = sha256(file)
    assert digest is not None, f"Ivy left no {file}"
    return digest


def main(arguments: Sequence[str]) -> int:
    """``lock NAME`` writes the lock, ``fetch NAME`` fills the cache."""
    match arguments:
        case ["lock", name] if name in MODULES:
            file_of(name).write_text(text_of(name, make_lock(name)), encoding="utf-8")
        case ["fetch", name] if name in MODULES:
            sys.stdout.write(f"{jars_of(name)}\n")
        case _:
            _tell(f"usage: python -m tests.lab.jars lock|fetch {'|'.join(MODULES)}")
            return 2
    return 0


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
