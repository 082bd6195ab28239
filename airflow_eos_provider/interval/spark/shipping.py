"""Ships this package and kafka-python to the executors, so that nobody installs them there; a login may need more.

Both are pure Python. They are one zip of compiled modules, which Spark puts ahead of an executor's own packages.
The zip has no sources, and few files: a worker compiles nothing, and kafka-python reads the zip's directory again for
each of its schemas.
"""

from __future__ import annotations

import hashlib
import io
import marshal
import sys
import tempfile
import threading
from collections.abc import Iterator
from functools import cache
from importlib.machinery import SourceFileLoader
from importlib.util import MAGIC_NUMBER, source_hash
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary, WeakSet
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import kafka

import airflow_eos_provider
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.spark.executors.tasks import REPORT_COLUMN, shipped
from airflow_eos_provider.interval.spark.sessions import is_remote, owner_of
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings

#: Folders of this package that tasks import from, besides the modules at its top.
_OWN_FOLDERS = ("connect", "interval", "journal", "kafka")

#: kafka-python's command line and benchmarks.
_LEFT_OUT = ("benchmarks", "cli")

#: Later versions of marshal write references, which depend on the modules that a process has loaded.
_MARSHAL = 2

#: "Do not look for the source" (PEP 552).
_UNCHECKED_HASH = (1).to_bytes(4, "little")

_OWN, _KAFKA = Path(airflow_eos_provider.__file__).parent, Path(kafka.__file__).parent

_done: WeakSet[Any] = WeakSet()
_logins: WeakKeyDictionary[Any, list[KafkaSettings]] = WeakKeyDictionary()
_lock = threading.Lock()


def ship(spark: Any) -> None:
    """Give both packages to the executors of a session, once.

    Not needed where the workers are this very Python; nor where the driver itself has them from a zip of
    ``--py-files``, which the executors have, too.
    """
    owner = owner_of(spark)
    with _lock:
        if owner in _done or _has_packages(owner) or not (_OWN.is_dir() and _KAFKA.is_dir()):
            return
        if is_remote(spark):
            with tempfile.TemporaryDirectory(prefix="eos-") as folder:
                spark.addArtifacts(str(_written(Path(folder))), pyfile=True)
        else:
            from pyspark import SparkFiles

            # Spark serves the file from where it is, and removes this folder with the session.
            owner.addPyFile(str(_written(Path(SparkFiles.getRootDirectory()))))
        name = package()[0]
        sys.path[:] = [entry for entry in sys.path if not entry.endswith(name)]  # the driver keeps the installed ones
        _done.add(owner)


def require_login(spark: Any, pipeline: Pipeline) -> None:
    """Check in one task that an executor can log in: Kerberos, tokens and key stores need packages or files there.

    It is asked before a run begins, and only where a run of this process has not asked before.
    """
    owner = owner_of(spark)
    is_plain = pipeline.kafka.properties.get("security.protocol", "PLAINTEXT").upper() == "PLAINTEXT"
    if is_plain or _has_packages(owner) or pipeline.kafka in _logins.setdefault(owner, []):
        return
    asked = spark.range(0, 1, 1, 1).mapInArrow(shipped("look_at_login", pipeline.to_dict()), f"{REPORT_COLUMN} string")
    asked.collect()
    _logins[owner].append(pipeline.kafka)


def _has_packages(owner: Any) -> bool:
    return not is_remote(owner) and owner.master.startswith("local") and owner.pythonExec == sys.executable


def _written(folder: Path) -> Path:
    name, content = package()
    path = folder / name
    path.write_bytes(content)
    return path


@cache
def package() -> tuple[str, bytes]:
    """The zip, and its name, which has a digest of the content: another version never takes its place."""
    content = io.BytesIO()
    with ZipFile(content, "w") as archive:
        for file, name in _files():
            code = file.suffix == ".py"
            entry = ZipInfo(f"{name}c" if code else name)
            archive.writestr(entry, _compiled(file) if code else file.read_bytes(), ZIP_DEFLATED)
    found = content.getvalue()
    return f"eos-{airflow_eos_provider.__version__}-{hashlib.sha256(found).hexdigest()[:16]}.zip", found


def _files() -> Iterator[tuple[Path, str]]:
    """Files, with their names in the zip."""
    own = [*_OWN.glob("*.py"), *(file for folder in _OWN_FOLDERS for file in (_OWN / folder).rglob("*.py"))]
    theirs = [file for kind in ("*.py", "*.json") for file in _KAFKA.rglob(kind)]
    for file in sorted(own):
        yield file, str(file.relative_to(_OWN.parent))
    for file in sorted(theirs):
        if file.relative_to(_KAFKA).parts[0] not in _LEFT_OUT:
            yield file, str(file.relative_to(_KAFKA.parent))


def _compiled(file: Path) -> bytes:
    """A module as Python's cache has it, from there if it is there."""
    code = SourceFileLoader(file.stem, str(file)).get_code(file.stem)
    return MAGIC_NUMBER + _UNCHECKED_HASH + source_hash(file.read_bytes()) + marshal.dumps(code, _MARSHAL)
