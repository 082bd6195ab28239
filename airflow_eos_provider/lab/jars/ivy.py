"""Jars by Apache Ivy, which ships inside pyspark: nothing else needs to be installed to fetch a Kafka.

Ivy resolves from its own default repository, so nothing here names a host.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

from airflow_eos_provider.errors import ConfigurationError, EosError, UnreachableError
from airflow_eos_provider.lab.files import files_of
from airflow_eos_provider.lab.jars.java import java_program

#: A whole download; ninety jars take 20 s on a good line.
FETCH_TIMEOUT_SECONDS = 900.0

#: Maven's jars hide behind several packagings; all of them are plain jar files.
_JAR_TYPES = ("jar", "bundle", "hk2-jar", "eclipse-plugin")
_CONFIGURATION = "lab"


@dataclass(frozen=True, slots=True, order=True)
class Artifact:
    """One jar of a Maven repository; a second jar of the same module has a classifier, ``test`` for instance."""

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
    """The Ivy inside pyspark."""
    jars = files_of("pyspark", "jars/ivy-*.jar")
    if not jars:
        raise ConfigurationError(
            "Apache Ivy was not found: pyspark is missing, or is here without its jars.",
            expected="pyspark with its folder jars/, which the lab fetches Kafka's jars with",
            remedy="Install the extra: pip install 'airflow-eos-provider[lab]'.",
        )
    return jars[-1]


def retrieve(
    artifacts: Iterable[Artifact], into: Path, *, transitive: bool = False, jvm_options: Sequence[str] = ()
) -> list[Artifact]:
    """Download jars into a folder, each under its :attr:`Artifact.file_name`; returns all that were fetched.

    :param transitive: follow the modules' own dependencies too; otherwise exactly these jars are fetched.
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
        _run(command)
        return _fetched(work / "cache")


def _run(command: list[str]) -> None:
    expected = "the public Maven repository to be reachable, or all jars to be in the cache already"
    remedy = "Check the network and run the command again."
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=FETCH_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        found = f"Ivy did not fetch all jars in {FETCH_TIMEOUT_SECONDS:.0f} s."
        raise UnreachableError(found, expected=expected, remedy=remedy) from error
    if done.returncode != 0:
        end = done.stdout.splitlines()[-25:]
        problems = [line for line in end if "WARN" in line or "ERROR" in line or "problem" in line.lower()]
        found = f"Ivy failed to fetch the jars (exit code {done.returncode}):\n" + "\n".join(problems or end)
        raise UnreachableError(found, expected=expected, remedy=remedy)


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
