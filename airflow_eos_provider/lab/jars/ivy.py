"""Jars by Apache Ivy, which ships inside pyspark: nothing else needs to be installed to fetch a Kafka.

Ivy resolves from its own default repository, so nothing here names a host.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from airflow_eos_provider.errors import ConfigurationError, UnreachableError
from airflow_eos_provider.lab.files import files_of
from airflow_eos_provider.lab.jars.java import java_program

#: A whole download; ninety jars take 20 s on a good line.
FETCH_TIMEOUT_SECONDS = 900.0

#: Maven's jars hide behind several packagings; all of them are plain jar files.
_JAR_TYPES = ("jar", "bundle", "hk2-jar", "eclipse-plugin")
CONFIGURATION = "lab"

#: Nothing but the jars is asked for, no descriptions and no lists of versions.
_SETTINGS = ' usepoms="false" useMavenMetadata="false" checkmodified="false"'


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
        return cls(*text.split(":"))

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


def retrieve(artifacts: Iterable[Artifact], into: Path, jvm_options: Sequence[str] = ()) -> None:
    """Download exactly these jars into a folder, each under its :attr:`Artifact.file_name`.

    :raises UnreachableError: the repository did not deliver all of them in :data:`FETCH_TIMEOUT_SECONDS`.
    """
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".ivy-", dir=into) as scratch:
        run_ivy(_SETTINGS, _dependencies(artifacts), into, Path(scratch), jvm_options)


def run_ivy(settings: str, dependencies: str, into: Path, work: Path, jvm_options: Sequence[str] = ()) -> None:
    """Have Ivy put what a module depends on into a folder.

    :param settings: attributes of the repository.
    :param work: a folder for Ivy's own files, its report in ``cache`` among them.
    """
    (work / "ivysettings.xml").write_text(
        '<ivysettings><settings defaultResolver="maven"/>'
        f'<resolvers><ibiblio name="maven" m2compatible="true"{settings}/></resolvers></ivysettings>',
        encoding="utf-8",
    )
    (work / "ivy.xml").write_text(
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        f'<info organisation="lab" module="lab"/><configurations><conf name="{CONFIGURATION}"/></configurations>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>",
        encoding="utf-8",
    )
    command = [str(java_program()), *jvm_options, "-jar", str(ivy_jar())]
    command += ["-settings", str(work / "ivysettings.xml"), "-ivy", str(work / "ivy.xml")]
    command += ["-cache", str(work / "cache"), "-confs", CONFIGURATION, "-types", *_JAR_TYPES]
    command += ["-retrieve", str(into / "[artifact]-[revision](-[classifier]).[ext]")]
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


def _dependencies(artifacts: Iterable[Artifact]) -> str:
    """What Ivy is to fetch; the artifacts of one module with different classifiers are grouped."""
    by_module: dict[tuple[str, str, str], list[Artifact]] = {}
    for artifact in artifacts:
        by_module.setdefault((artifact.organisation, artifact.name, artifact.revision), []).append(artifact)
    lines = []
    for (organisation, name, revision), members in by_module.items():
        lines.append(
            f"<dependency org={quoteattr(organisation)} name={quoteattr(name)} rev={quoteattr(revision)}"
            f' conf="{CONFIGURATION}->default" transitive="false">'
        )
        for member in members:
            classifier = f" m:classifier={quoteattr(member.classifier)}" if member.classifier else ""
            lines.append(f'<artifact name={quoteattr(name)} type="jar" ext="jar"{classifier}/>')
        lines.append("</dependency>")
    return "".join(lines)
