"""The lab's jars: locked by SHA-256, fetched once, checked on every use.

``connect-<version>.lock`` beside this module lists each jar with its digest; the lock of a plugin has the jars of a
connector that Kafka does not come with, that of a cluster manager what Spark's executors run on, that of sources what
Spark reads them with. They were made, and are made again for another version, by
``python -m airflow_eos_provider.lab.jars lock``.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from airflow_eos_provider.errors import ConfigurationError, EosError
from airflow_eos_provider.lab.ivy import FETCH_TIMEOUT_SECONDS, Artifact, retrieve

DEFAULT_VERSION = "4.3.1"

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

_MODULES: Mapping[str, tuple[str, ...]] = {**ROOTS, **PLUGINS, **CLUSTERS, **SOURCES}

#: What brings along all that it needs.
_WHOLE = {**ROOTS, **PLUGINS}

#: A worker gives these to its plugins, whatever they bring along.
_OF_THE_WORKER = ("org.apache.kafka", "org.slf4j")

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class JarLock:
    """Which jars a version of the lab consists of.

    :param version: of Kafka and Connect; or the name of a plugin, of a cluster manager or of Spark's sources.
    :param digests: the SHA-256 of each jar, in hexadecimal digits.
    """

    version: str
    digests: Mapping[Artifact, str]

    @classmethod
    def of(cls, version: str) -> JarLock:
        """The committed lock of a version.

        :raises ConfigurationError: this version has none.
        """
        if version not in _MODULES:
            raise ConfigurationError(
                f"The lab has no locked jars of Kafka {version}.", expected=f"one of {', '.join(_MODULES)}"
            )
        return cls.parse(version, lock_file(version).read_text(encoding="utf-8"))

    @classmethod
    def parse(cls, version: str, text: str) -> JarLock:
        """Lines of ``<sha256> <organisation>:<name>:<revision>[:<classifier>]``; ``#`` begins a comment."""
        digests: dict[Artifact, str] = {}
        for line in text.splitlines():
            if line.strip() and not line.startswith("#"):
                digest, _, coordinates = line.strip().partition(" ")
                digests[Artifact.parse(coordinates.strip())] = digest
        return cls(version, digests)

    def text(self) -> str:
        """The lock as :meth:`parse` reads it."""
        head = [
            f"# The jars of the lab with {self.title}, each with its SHA-256.",
            f"# Made by: python -m airflow_eos_provider.lab.jars lock {self.version}",
        ]
        return "\n".join(head + [f"{digest} {jar}" for jar, digest in sorted(self.digests.items())]) + "\n"

    @property
    def title(self) -> str:
        """What the jars are of, in words."""
        return f"Kafka {self.version}" if self.version in ROOTS else self.version

    @property
    def digest(self) -> str:
        """The name of the lock's folder in the cache: another set of jars has another folder."""
        return hashlib.sha256(self.text().encode()).hexdigest()[:16]

    def damaged(self, folder: Path) -> list[Artifact]:
        """The jars that are missing in the folder or are not what was locked; all of 55 MB are read, in 0.1 s."""
        return [jar for jar, digest in self.digests.items() if sha256(place(folder, jar)) != digest]

    def unknown_files(self, folder: Path) -> list[Path]:
        """Jars in the folder that were never locked; a class path would take them in."""
        return sorted(set(folder.rglob("*.jar")) - {place(folder, jar) for jar in self.digests})


def place(folder: Path, jar: Artifact) -> Path:
    """Where a jar lies: those with a classifier in a folder of their own, so that a class path can leave them out."""
    return folder / jar.classifier / jar.file_name


def class_path(folder: Path, *, test_connectors: bool = False) -> str:
    """The class path for ``java -cp``.

    :param test_connectors: with the jar of Connect's own tests, whose connectors then show up among the plugins.
    """
    return os.pathsep.join([f"{folder}/*"] + [f"{folder}/test/*"] * test_connectors)


def lock_file(version: str) -> Path:
    """Where a version's lock lies in the package."""
    return Path(__file__).with_name(f"connect-{version}.lock" if version in ROOTS else f"{version}.lock")


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/airflow_eos_provider/jars``, in ``~/.cache`` without that variable."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "airflow_eos_provider" / "jars"


def jar_folder(version: str) -> Path:
    """Where the version's jars lie once they are fetched.

    :raises ConfigurationError: the version is not locked.
    """
    return cache_folder() / JarLock.of(version).digest


def ensure_jars(
    version: str = DEFAULT_VERSION,
    *,
    progress: Progress = lambda line: None,
    cache: Path | None = None,
    jvm_options: Sequence[str] = (),
) -> Path:
    """The folder with the version's jars, every one checked; missing and damaged ones are fetched first.

    Several labs may ask at once: one fetches, the others wait for it. A jar enters the folder whole and checked, or not
    at all, so a fetch that was killed leaves nothing that could be mistaken for a jar.

    :param progress: receives a line now and then while jars are fetched.
    :param cache: instead of :func:`cache_folder`.
    :param jvm_options: further options for the JVM that fetches.
    :raises ConfigurationError: the version is not locked, or what is needed to fetch is not installed.
    :raises UnreachableError: the repository does not deliver.
    :raises EosError: it delivers something other than what was locked.
    """
    lock = JarLock.of(version)
    folder = (cache or cache_folder()) / lock.digest
    if not lock.damaged(folder) and not lock.unknown_files(folder):
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    with _only_one(folder.with_name(f"{lock.digest}.lock"), progress):
        for stale in folder.parent.glob(f".fetch-{lock.digest}-*"):  # of a fetch that was killed: we hold its lock
            shutil.rmtree(stale, ignore_errors=True)
        for unknown in lock.unknown_files(folder):
            unknown.unlink()
        missing = lock.damaged(folder)
        if missing:
            _fetch(lock, missing, folder, progress, jvm_options)
    return folder


def _fetch(
    lock: JarLock, missing: Sequence[Artifact], folder: Path, progress: Progress, jvm_options: Sequence[str]
) -> None:
    began = time.monotonic()
    total = len(missing)
    progress(f"Fetching {total} jar{'s' * (total > 1)} of {lock.title} into {folder} (once; about 20 s)")

    def fetched(count: int) -> None:
        if count % 20 == 0 or count == total:
            progress(f"  {count} of {total} jars, {time.monotonic() - began:.0f} s")

    with tempfile.TemporaryDirectory(prefix=f".fetch-{lock.digest}-", dir=folder.parent) as scratch:
        retrieve(missing, Path(scratch), progress=fetched, jvm_options=jvm_options)
        for jar in missing:
            arrived = Path(scratch) / jar.file_name
            found = sha256(arrived)
            if found != lock.digests[jar]:
                raise EosError(
                    f"The jar {jar} arrived with " + (f"SHA-256 {found}." if found else "no content."),
                    expected=f"SHA-256 {lock.digests[jar]}, as {lock_file(lock.version).name} has it",
                    remedy="Do not use it. Look for what changes downloads between here and the repository.",
                )
            target = place(folder, jar)
            target.parent.mkdir(exist_ok=True)
            arrived.replace(target)


@contextmanager
def _only_one(lock_path: Path, progress: Progress) -> Iterator[None]:
    """Hold a lock file. The system releases it with the process that holds it, however that ends."""
    with lock_path.open("w") as handle:
        deadline = time.monotonic() + FETCH_TIMEOUT_SECONDS
        announced = False
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    raise EosError(
                        f"Another process has been fetching the lab's jars for {FETCH_TIMEOUT_SECONDS:.0f} s.",
                        remedy=f"End it (it holds {lock_path}) and run the command again.",
                    ) from error
                if not announced:
                    progress("Waiting for another lab that is fetching the jars")
                    announced = True
                time.sleep(0.2)  # a poll of the lock, bounded by the deadline above
        yield


def sha256(path: Path) -> str | None:
    """The file's SHA-256, or None if it cannot be read."""
    try:
        with path.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()
    except OSError:
        return None


def make_lock(version: str) -> JarLock:
    """Resolve a version's modules anew and lock what they need (a minute or two)."""
    with tempfile.TemporaryDirectory(prefix="eos-lock-") as scratch:
        folder = Path(scratch)
        jars = retrieve(map(Artifact.parse, _MODULES[version]), folder, transitive=version in _WHOLE)
        if version in PLUGINS:
            jars = [jar for jar in jars if jar.organisation not in _OF_THE_WORKER]
        extras = [Artifact.parse(text) for text in EXTRAS.get(version, ())]
        jars += retrieve(extras, folder) if extras else []
        return JarLock(version, {jar: _required_digest(folder, jar) for jar in jars})


def _required_digest(folder: Path, jar: Artifact) -> str:
    digest = sha256(folder / jar.file_name)
    if digest is None:
        raise EosError(f"Ivy reported {jar}, but left no {jar.file_name}.")
    return digest


def main(arguments: Sequence[str]) -> int:
    """``lock [VERSION]`` writes the lock, ``fetch [VERSION]`` fills the cache."""
    verb, version = [*arguments, "", ""][0], [*arguments, "", ""][1] or DEFAULT_VERSION
    if verb == "lock" and version in _MODULES:
        lock = make_lock(version)
        lock_file(version).write_text(lock.text(), encoding="utf-8")
        sys.stderr.write(f"{lock_file(version)}: {len(lock.digests)} jars\n")
        return 0
    if verb == "fetch" and version in _MODULES:
        sys.stdout.write(f"{ensure_jars(version, progress=lambda line: _tell(line))}\n")
        return 0
    sys.stderr.write(f"usage: python -m airflow_eos_provider.lab.jars lock|fetch [{'|'.join(_MODULES)}]\n")
    return 2


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
