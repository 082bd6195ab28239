"""The declaration of abandoning an interval run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from airflow_eos_provider.changes.change import Change, Done, Plan, option
from airflow_eos_provider.errors import ConfigurationError, RefusedError
from airflow_eos_provider.interval.interval import DEFAULT_GROUP_ID, GROUP_HELP, Run

if TYPE_CHECKING:
    from airflow_eos_provider.connect.connect_session import ConnectSession
    from airflow_eos_provider.interval.pipeline import Pipeline


@dataclass(frozen=True, slots=True)
class AbandonRequest:
    """Which run is given up."""

    run: str = option(
        "The run as 'eos intervals list' names it, such as orders@2026-01-01T05:00:00Z/2026-01-02T05:00:00Z; with #2 "
        "and so on for a revision.",
        title="Run",
        argument=True,
        metavar="RUN",
        completes="run",
    )
    group: str = option(GROUP_HELP, DEFAULT_GROUP_ID, envvar="EOS_GROUP")


class Abandon(Change[AbandonRequest]):
    """The end of an interval run of which nothing is committed."""

    name = "intervals abandon"
    title = "Give up an interval run"
    summary = "Give up a run of which nothing is committed, so that its interval is free for another plan or schedule."
    details = (
        "A driver that still works on the run is fenced, and the run's plan is removed. It is refused as soon as one "
        "slice is committed: records cannot be unwritten."
    )
    request = AbandonRequest
    examples = (
        "eos intervals abandon orders@2026-01-01T05:00:00Z/2026-01-02T05:00:00Z",
        "eos intervals abandon orders@2026-01-01T05:00:00Z/2026-01-02T05:00:00Z#2 --group etl --yes",
    )
    dag = "interval_abandon_dag"
    takes_lease = False
    brokers_only = True

    def plan(self, session: ConnectSession, request: AbandonRequest) -> Plan:
        """The end of the run as it is on record."""
        from airflow_eos_provider.interval.verify import status

        run = Run.parse(request.run)
        found = status(_pipeline(session, run, request.group), run)
        if found is None:
            raise ConfigurationError(
                f"Nothing of {run.name} is on record in the group {request.group}.", remedy="See 'eos intervals list'."
            )
        if found.complete or found.done:
            what = "is complete" if found.complete else f"has {len(found.done)} of {found.slices} slices committed"
            raise RefusedError(f"{run} {what}; it cannot be given up.", remedy="Run it again to complete it.")
        return Plan(
            self.name,
            request.group,
            about=run.name,
            question=f"Give up the interval run {run.name}?",
            lines=(
                f"give up {run.name} of group {request.group}: none of its {found.slices} slices is committed",
                f"  its plan {found.plan_hash} and generation {found.generation} are removed",
                "  a driver that still runs it is fenced",
                "  its interval is as if never planned; the next run of it makes a new plan",
            ),
            content={"run": run.name, "plan": found.plan_hash, "generation": found.generation},
            request=asdict(request),
        )

    def apply(self, session: ConnectSession, plan: Plan, act: None, report: Callable[[str], None]) -> Done:
        """Give the run up. The coordinator looks once more behind its fencing, and refuses what is committed."""
        from airflow_eos_provider.interval.protocol.coordinator import Coordinator

        run = Run.parse(plan.content["run"])
        with Coordinator(_pipeline(session, run, plan.group_id), run, report=report) as coordinator:
            coordinator.abandon()
        document = {"run": run.name, "abandoned": True}
        return Done(document, (f"{run.name} is given up: nothing of it was written.",))


def _pipeline(session: ConnectSession, run: Run, group_id: str) -> Pipeline:
    from airflow_eos_provider.interval.pipeline import Pipeline

    return Pipeline(name=run.pipeline, group_id=group_id, kafka=session.cluster.kafka)


ABANDON = Abandon()
