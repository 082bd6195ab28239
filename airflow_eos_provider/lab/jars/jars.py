"""The lab's jars: locked by SHA-256, fetched once, checked on every use.

``connect-<version>.lock`` next to this module lists each jar with its digest. ``python -m tests.lab.jars`` writes it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from airflow_eos_provider.errors import ConfigurationError, EosError
from airflow_eos_provider.lab.jars.ivy import Artifact, retrieve
from airflow_eos_provider.lab.lab_processes import exclusive

DEFAULT_VERSION = "4.3.1"

#: Of the workers. Those before 4 are for older workers only: they log by reload4j, and the brokers are of
#: :data:`DEFAULT_VERSION`. 3.2.3 is before KIP-618.
VERSIONS = (DEFAULT_VERSION, "3.9.2", "3.8.1", "3.2.3")

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class JarLock:
    """Which jars something consists of, such as ``Kafka 4.3.1``, each with its SHA-256 in hexadecimal digits."""

    title: str
    digests: Mapping[Artifact, str]

    @classmethod
    def of(cls, version: str) -> JarLock:
        """The committed lock of a version of Kafka and Connect."""
        if version not in VERSIONS:
            raise ConfigurationError(
                f"The lab has no locked jars of Kafka {version}.", expected=f"one of {', '.join(VERSIONS)}"
            )
        return cls.read(f"Kafka {version}", lock_file(version))

    @classmethod
    def read(cls, title: str, file: Path) -> JarLock:
        """A file of lines ``<sha256> <organisation>:<name>:<revision>[:<classifier>]``; ``#`` begins a comment."""
        digests: dict[Artifact, str] = {}
        for line in file.read_text(encoding="utf-8").splitlines():
            if line.strip() and not line.startswith("#"):
                digest, _, coordinates = line.strip().partition(" ")
                digests[Artifact.parse(coordinates.strip())] = digest
        return cls(title, digests)

    @property
    def lines(self) -> list[str]:
        """The lines as :meth:`read` takes them."""
        return [f"{digest} {jar}" for jar, digest in sorted(self.digests.items())]

    @property
    def digest(self) -> str:
        """The name of the lock's folder in the cache: another set of jars has another folder."""
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()[:16]

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
    """The class path for ``java -cp``; the jar of Connect's own tests has connectors, which then are plugins."""
    return os.pathsep.join([f"{folder}/*"] + [f"{folder}/test/*"] * test_connectors)


def lock_file(version: str) -> Path:
    """Where a version's lock lies in the package."""
    return Path(__file__).with_name(f"connect-{version}.lock")


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/airflow_eos_provider/jars``, in ``~/.cache`` without that variable."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "airflow_eos_provider" / "jars"


def jar_folder(version: str) -> Path:
    """Where the version's jars lie once they are fetched."""
    return cache_folder() / JarLock.of(version).digest


def ensure_jars(
    version: str | JarLock = DEFAULT_VERSION,
    *,
    progress: Progress = lambda line: None,
    cache: Path | None = None,
    jvm_options: Sequence[str] = (),
) -> Path:
    """The folder with the jars of a version or a lock, every one checked; missing and damaged ones are fetched first.

    Several labs may ask at once: one fetches, the others wait for it. A jar enters the folder whole and checked, or not
    at all, so a fetch that was killed leaves nothing that could be mistaken for a jar.

    :raises UnreachableError: the repository does not deliver.
    :raises EosError: it delivers something other than what was locked.
    """
    lock = version if isinstance(version, JarLock) else JarLock.of(version)
    folder = (cache or cache_folder()) / lock.digest
    if not lock.damaged(folder) and not lock.unknown_files(folder):
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    with exclusive(folder, progress):
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
    total = len(missing)
    progress(f"Fetching {total} jar{'s' * (total > 1)} of {lock.title} into {folder} (once; about 20 s)")
    with tempfile.TemporaryDirectory(prefix=f".fetch-{lock.digest}-", dir=folder.parent) as scratch:
        retrieve(missing, Path(scratch), jvm_options)
        for jar in missing:
            arrived = Path(scratch) / jar.file_name
            found = sha256(arrived)
            if found != lock.digests[jar]:
                raise EosError(
                    f"The jar {jar} arrived with " + (f"SHA-256 {found}." if found else "no content."),
                    expected=f"SHA-256 {lock.digests[jar]}, from the lock file",
                    remedy="Do not use it. Look for what changes downloads between here and the repository.",
                )
            target = place(folder, jar)
            target.parent.mkdir(exist_ok=True)
            arrived.replace(target)


def sha256(path: Path) -> str | None:
    """The file's SHA-256, or None if it cannot be read."""
    try:
        with path.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()
    except OSError:
        return None
