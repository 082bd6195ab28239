"""``python -m tests.faults.mutants``: each sentence of the proof is taken out of a copy of the code, and a test fails.

For each mutant of :mod:`tests.faults.mutants_table` the package and its tests are copied into a folder of their own,
the mutant's text is replaced there, and the tests that have to notice are run in that folder. A mutant is *killed* if
one of them fails in its own words; it has *survived* if all pass; it is *broken* if no test came to a verdict (nothing
was collected, a fixture failed, a time limit ended pytest), which proves nothing and counts as a failure of this
program.

First all those tests run in a copy in which nothing is replaced. There they pass, or what they say of mutants is void.

The copy is what runs: pytest refuses to begin where ``airflow_eos_provider`` is imported from elsewhere, and each
actor's process names the folder that its code is from (``conftest.py``).
"""

from __future__ import annotations

import argparse
import inspect
import os
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from tests.faults.mutants_table import MUTANTS, Mutant

#: What the copy consists of.
ROOT = Path(__file__).resolve().parents[2]
_PARTS = ("airflow_eos_provider", "tests", "dags", "pyproject.toml")

#: Limit of one test, seconds. Each waits for less, so this ends what a mutant makes wait for ever.
_TEST_SECONDS = 240

#: Limit of one session of pytest, seconds.
_SESSION_SECONDS = 1800

#: Stands at the top of the copy, where pytest loads it before any test.
_GUARD = """
from pathlib import Path
import airflow_eos_provider
found, here = Path(airflow_eos_provider.__file__).resolve().parents[1], Path(__file__).resolve().parent
assert found == here, f"the tests of the copy in {here} import the code of {found}"
"""


class MutantError(Exception):
    """A mutant cannot be made of the source as it is."""


class Verdict(Enum):
    """What the tests say of one copy."""

    KILLED = "killed"
    SURVIVED = "survived"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one mutant.

    :param reported: the failing test and the first line of what it says; for a broken one the end of pytest's output.
    :param seconds: that its tests took.
    """

    mutant: Mutant
    verdict: Verdict
    reported: str
    seconds: float


def apply(mutant: Mutant, folder: Path) -> None:
    """Make the mutant of the copy in this folder.

    :raises MutantError: a text that is to be replaced does not stand in its file exactly once.
    """
    for edit in mutant.edits:
        path = folder / edit.file
        source = path.read_text(encoding="utf-8")
        if (times := source.count(edit.old)) != 1:
            raise MutantError(
                f"{mutant.name}: the text to replace is {times} times in {edit.file}, expected once:\n{edit.old}\n"
                "Take over into tests/faults/mutants_table.py what the source says now."
            )
        path.write_text(source.replace(edit.old, edit.new), encoding="utf-8")


@contextmanager
def copied() -> Iterator[Path]:
    """A copy of package and tests, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="eos-mutant-") as name:
        folder = Path(name).resolve()
        for part in _PARTS:
            if (ROOT / part).is_dir():
                shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copyfile(ROOT / part, folder / part)
        (folder / "conftest.py").write_text(_GUARD, encoding="utf-8")
        yield folder


def judge(folder: Path, tests: Sequence[str]) -> tuple[Verdict, str]:
    """Run tests in a copy.

    :param tests: ids as pytest has them.
    :returns: the verdict, and what was reported; see :class:`Outcome`.
    """
    report = folder / "report.xml"
    command = [sys.executable, "-m", "pytest", "-n0", "-x", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder)]
    command += ["-c", str(folder / "pyproject.toml"), f"--timeout={_TEST_SECONDS}", f"--junitxml={report}", *tests]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    log = folder / "pytest.log"
    with log.open("wb") as output:
        try:
            code = subprocess.run(
                command, cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL, timeout=_SESSION_SECONDS, check=False,
            ).returncode  # fmt: skip
        except subprocess.TimeoutExpired:
            code = -1
    passed, failed = _read(report)
    if failed:
        return Verdict.KILLED, failed[0]
    if code == 0 and passed >= len(tests):
        return Verdict.SURVIVED, f"{passed} passed"
    return Verdict.BROKEN, f"exit code {code}, {passed} passed\n" + _tail(log)


def _read(report: Path) -> tuple[int, list[str]]:
    """How many tests passed, and the failed ones with their words. An error in a fixture is neither."""
    if not report.exists():
        return 0, []
    passed, failed = 0, []
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        failure = case.find("failure")
        if failure is not None:
            failed.append(f"{case.get('name')}: {(failure.get('message') or '').splitlines()[0][:160]}")
        elif case.find("error") is None and case.find("skipped") is None:
            passed += 1
    return passed, failed


def _tail(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")[-1500:]


def try_mutant(mutant: Mutant) -> Outcome:
    """Make one mutant and run its tests."""
    began = time.monotonic()
    with copied() as folder:
        apply(mutant, folder)
        verdict, reported = judge(folder, mutant.killers)
    return Outcome(mutant, verdict, reported, time.monotonic() - began)


def require_sound(mutants: Iterable[Mutant]) -> None:
    """Check that all the tests pass where nothing is replaced.

    :raises MutantError: one does not.
    """
    tests = tuple(dict.fromkeys(test for mutant in mutants for test in mutant.killers))
    with copied() as folder:
        verdict, reported = judge(folder, tests)
    if verdict is not Verdict.SURVIVED:
        raise MutantError(f"The tests do not pass on the code as it is, so no mutant can be judged: {reported}")


def chosen(names: Sequence[str]) -> tuple[Mutant, ...]:
    """The mutants of these names, all if none is given.

    :raises MutantError: a name is not known.
    """
    known = {mutant.name: mutant for mutant in MUTANTS}
    if unknown := [name for name in names if name not in known]:
        raise MutantError(f"There is no mutant {', '.join(unknown)}. Known: {', '.join(known)}.")
    return tuple(known[name] for name in names or known)


def table(outcomes: Iterable[Outcome]) -> str:
    """A line a mutant."""
    return "\n".join(
        f"{o.verdict.value:9} {o.mutant.name:34} {o.seconds:6.1f} s  {o.reported.splitlines()[0]}" for o in outcomes
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit code: 0 if all are killed, 1 if one survives, 2 if one could not be judged."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.mutants", description=inspect.cleandoc(__doc__ or ""))
    parser.add_argument("names", nargs="*", metavar="NAME", help="mutants to try; all if none is given")
    parser.add_argument("--list", action="store_true", help="name the mutants and what each of them lacks")
    parser.add_argument("--unproven", action="store_true", help="leave out the run on the code as it is")
    options = parser.parse_args(arguments)
    try:
        mutants = chosen(options.names)
        if options.list:
            sys.stdout.write("".join(f"{mutant.name:34} {mutant.without}\n" for mutant in mutants))
            return 0
        if not options.unproven:
            _say("the tests, on the code as it is ...")
            require_sound(mutants)
        outcomes = []
        for number, mutant in enumerate(mutants, 1):
            _say(f"[{number}/{len(mutants)}] {mutant.name}: {mutant.without} ...")
            outcomes.append(try_mutant(mutant))
            _say(f"    {outcomes[-1].verdict.value} in {outcomes[-1].seconds:.1f} s: {outcomes[-1].reported}")
    except MutantError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(f"\n{table(outcomes)}\n")
    verdicts = {outcome.verdict for outcome in outcomes}
    return 1 if Verdict.SURVIVED in verdicts else 2 if Verdict.BROKEN in verdicts else 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
