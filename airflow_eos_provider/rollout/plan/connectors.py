"""Effects of a roll to enabled on the connectors: a check of the roll, and a section of its plan.

A roll is refused only if it is certain to stop tasks that run now. All other effects are shown to the approver.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_eos_provider.data_text import VALUE_CHARACTERS, one_line
from airflow_eos_provider.preflight.report import Report
from airflow_eos_provider.rollout.check import Check, failed, passed

NAME = "connectors"

#: All questions to the workers together take no longer, seconds: whoever makes a plan waits for it.
LOOK_SECONDS = 20.0

#: So many findings are in a plan; 'eos preflight' shows all.
SHOWN = 10


@dataclass(frozen=True, slots=True)
class ConnectorNotes:
    """What a plan says about the connectors; not part of its hash.

    :param summary: in a sentence.
    :param lines: the worst findings, one a line.
    """

    summary: str = ""
    lines: tuple[str, ...] = ()

    @classmethod
    def of(cls, report: Report) -> ConnectorNotes:
        """The notes of a preflight."""
        return cls(report.summary(), tuple(one_line(line, 2 * VALUE_CHARACTERS) for line in report.lines(SHOWN)))


def stops_no_task(report: Report) -> Check:
    """No task that runs now fails in the mode."""
    stopping = report.stopping
    if not stopping:
        return passed(NAME, report.summary())
    found = "; ".join(f"{one.subject}: {one.found}" for one in stopping)
    remedies = "; ".join(dict.fromkeys(f"{one.subject}: {one.remedy}" for one in stopping))
    return failed(NAME, f"tasks that run now would fail: {found}", f"{remedies}; or stop them, see 'eos preflight'")
