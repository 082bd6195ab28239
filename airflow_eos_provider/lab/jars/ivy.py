"""Jars by Apache Ivy, which ships inside pyspark: nothing else needs to be installed to fetch a Kafka.

Ivy resolves from its own default repository, so nothing here names a host.
"""

from __future__ import annotations

import importlib.util
import subprocess
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

from airflow_eos_provider.errors import ConfigurationError, EosError, UnreachableError
from airflow_eos_provider.lab.jars.java import java_program

#: A whole download; ninety jars take 20 s on a good line.
FETCH_TIMEOUT_SECONDS = 900.0

#: Maven's jars hide behind several packagings; all of them are plain jar files.
_JAR_TYPES = ("jar", "bundle", "hk2-jar", "eclipse-plugin")
_CONFIGURATION = "lab"


@dataclass(frozen=True, slots=True, order=True)
class Artifact:
    """One jar of a Maven repository.

    :param classifier: for a second jar of the same module, ``test`` for instance; empty for the jar itself.
    """

    organisation: str
    name: str
    revision: str
    classifier: str = ""

    @classmethod
    def parse(cls, text: str) -> Artifact:
        """``organisation:name:revision[:classifier]``."""
        parts = text.split(":")
        if len(parts) not in (3, 4) or not all(parts):
            raise ConfigurationError(
                f"{text!r} does not name a jar.", expected="organisation:name:revision or …:classifier"
            )
        return cls(*parts)

    def __str__(self) -> str:
        return ":".join(filter(None, (self.organisation, self.name, self.revision, self.classifier)))

    @property
    def file_name(self) -> str:
        """``name-revision[-classifier].jar``, as the repository names the file."""
        return "-".join(filter(None, (self.name, self.revision, self.classifier))) + ".jar"


def ivy_jar() -> Path:
    """The Ivy inside pyspark, found without importing pyspark (that would start py4j and cost a second).

    :raises ConfigurationError: pyspark, or Ivy in it, is not installed.
    """
    spec = importlib.util.find_spec("pyspark")
    locations = list(spec.submodule_search_locations or []) if spec else []
    jars = [jar for location in locations for jar in sorted(Path(location).glob("jars/ivy-*.jar"))]
    if not jars:
        raise ConfigurationError(
            "Apache Ivy was not found: " + ("pyspark is here without its jars." if spec else "pyspark is missing."),
            expected="pyspark with its folder jars/, which the lab fetches Kafka's jars with",
            remedy="Install the extra: pip install 'airflow-eos-provider[lab]'.",
        )
    return jars[-1]


def retrieve(
    artifacts: Iterable[Artifact],
    into: Path,
    *,
    transitive: bool = False,
    progress: Callable[[int], None] = lambda fetched: None,
    jvm_options: Sequence[str] = (),
) -> list[Artifact]:
    """Download jars into a folder, each under its :attr:`Artifact.file_name`.

    :param transitive: follow the modules' own dependencies too; otherwise exactly these jars are fetched.
    :param progress: called with the number of jars fetched so far.
    :param jvm_options: further options for Ivy's JVM.
    :returns: every jar that was fetched.
    :raises UnreachableError: the repository did not deliver all of them in :data:`FETCH_TIMEOUT_SECONDS`.
    """
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".ivy-", dir=into) as scratch:
        work = Path(scratch)
        (work / "ivysettings.xml").write_text(_settings(transitive), encoding="utf-8")
        (work / "ivy.xml").write_text(_module(list(artifacts), transitive), encoding="utf-8")
        command = [str(java_program()), *jvm_options, "-jar", str(ivy_jar())]
        command += ["-settings", str(work / "ivysettings.xml"), "-ivy", str(work / "ivy.xml")]
        command += ["-cache", str(work / "cache"), "-confs", _CONFIGURATION, "-types", *_JAR_TYPES]
        command += ["-retrieve", str(into / "[artifact]-[revision](-[classifier]).[ext]")]
        _run(command, progress)
        return _fetched(work / "cache")


def _run(command: list[str], progress: Callable[[int], None]) -> None:
    """Run Ivy to its end, counting the jars it reports."""
    tail: deque[str] = deque(maxlen=25)
    fetched = 0
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    watchdog = threading.Timer(FETCH_TIMEOUT_SECONDS, process.kill)
    watchdog.daemon = True
    watchdog.start()
    try:
        assert process.stdout is not None
        for line in process.stdout:
            tail.append(line.rstrip())
            if "[SUCCESSFUL ]" in line:
                fetched += 1
                progress(fetched)
        code = process.wait()
    finally:
        watchdog.cancel()
        if process.poll() is None:
            process.kill()
            process.wait()
    if code != 0:
        problems = [line for line in tail if "WARN" in line or "ERROR" in line or "problem" in line.lower()]
        raise UnreachableError(
            f"Ivy fetched {fetched} jars and then failed (exit code {code}):\n" + "\n".join(problems or tail),
            expected="the public Maven repository to be reachable, or all jars to be in the cache already",
            remedy="Check the network and run the command again.",
        )


def _settings(transitive: bool) -> str:
    """Ivy's settings; with a lock nothing but the jars is asked for, no descriptions and no lists of versions."""
    options = "" if transitive else ' usepoms="false" useMavenMetadata="false" checkmodified="false"'
    return (
        '<ivysettings><settings defaultResolver="maven"/>'
        f'<resolvers><ibiblio name="maven" m2compatible="true"{options}/></resolvers></ivysettings>'
    )


def _module(artifacts: list[Artifact], transitive: bool) -> str:
    """A module that depends on the artifacts; those of one module with different classifiers are grouped."""
    by_module: dict[tuple[str, str, str], list[Artifact]] = {}
    for artifact in artifacts:
        by_module.setdefault((artifact.organisation, artifact.name, artifact.revision), []).append(artifact)
    lines = []
    for (organisation, name, revision), members in by_module.items():
        lines.append(
            f"<dependency org={quoteattr(organisation)} name={quoteattr(name)} rev={quoteattr(revision)}"
            f' conf="{_CONFIGURATION}->default" transitive="{str(transitive).lower()}">'
        )
        # Naming artifacts switches off the module's own list, which a transitive look-up needs.
        for member in members if not transitive or any(m.classifier for m in members) else ():
            classifier = f" m:classifier={quoteattr(member.classifier)}" if member.classifier else ""
            lines.append(f'<artifact name={quoteattr(name)} type="jar" ext="jar"{classifier}/>')
        lines.append("</dependency>")
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        f'<info organisation="lab" module="lab"/><configurations><conf name="{_CONFIGURATION}"/></configurations>'
        f"<dependencies>{''.join(lines)}</dependencies></ivy-module>"
    )


def _fetched(cache: Path) -> list[Artifact]:
    """What Ivy's report of a resolution says it fetched."""
    report = cache / f"lab-lab-{_CONFIGURATION}.xml"
    if not report.is_file():
        raise EosError(f"Ivy ended well but left no report {report.name}.")
    found = []
    for module in ElementTree.parse(report).iter("module"):
        for revision in module.iter("revision"):
            for artifact in revision.iter("artifact"):
                if revision.get("evicted") or artifact.get("status") == "failed":
                    continue
                classifier = next((v for k, v in artifact.attrib.items() if k.endswith("classifier")), "")
                organisation, name = module.get("organisation", ""), artifact.get("name", "")
                found.append(Artifact(organisation, name, revision.get("name", ""), classifier))
    return sorted(found)
