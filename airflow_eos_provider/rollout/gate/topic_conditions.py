"""The gate's checks of the group's writes: transactions end, and source tasks make progress."""

from __future__ import annotations

from airflow_eos_provider.kafka.admin.transaction_state import TransactionState
from airflow_eos_provider.kafka.admin.transactions import TransactionDescription
from airflow_eos_provider.rollout.check import Check, inconclusive, passed
from airflow_eos_provider.rollout.gate.expectation import Expectation
from airflow_eos_provider.rollout.observe.observation import Observation

#: A broker looks for transactions to abort every ten seconds (``transaction.abort.timed.out.transaction.cleanup
#: .interval.ms``), and its clock may be off by some more.
ABORT_GRACE_SECONDS = 15.0

#: A partition held back for so long by a transaction that no coordinator knows is called hanging.
HANGING_SECONDS = 30.0

#: A source that moved steadily until so long before a restart has to move again after it.
STEADY_SECONDS = 30.0


def transactions(expectation: Expectation, observation: Observation) -> Check:
    """No transaction on the topics that the group writes is open past its timeout, and none is hanging.

    Neither is the restarted worker's doing (its transactions end by their coordinator), so this never restores.
    """
    name = "transactions"
    logs = observation.logs
    if logs is None:
        return inconclusive(
            name, observation.logs_problem or "not readable", "make the topics and transactions readable"
        )
    overdue = [t for t in logs.open_transactions if overdue_seconds(t, observation.at) > ABORT_GRACE_SECONDS]
    if overdue:
        remedy = "its coordinator does not abort it: read the brokers' logs"
        if overdue[0].state is not TransactionState.ONGOING:
            remedy = "its end is decided, but a partition does not take its marker: see that all brokers run"
        return inconclusive(
            name,
            f"the transaction of {overdue[0].transactional_id} is open ({overdue[0].state}) "
            f"{overdue_seconds(overdue[0], observation.at):.0f} s past its timeout",
            remedy,
        )
    listed = {place for transaction in logs.open_transactions for place in transaction.partitions}
    for held in logs.held:
        if observation.at - held.since > HANGING_SECONDS and (held.topic, held.partition) not in listed:
            return inconclusive(
                name,
                f"{held.topic}-{held.partition} is held at {held.stable} for {observation.at - held.since:.0f} s "
                "by a transaction that no coordinator knows",
                "a hanging transaction: 'eos transactions list --hanging' finds it, and says how to end it",
            )
    if logs.unreadable:
        return inconclusive(
            name, f"{', '.join(sorted(logs.unreadable)[:3])} cannot be read", "grant Describe on these topics"
        )
    open_ones = f"{len(logs.open_transactions)} open within their timeouts" if logs.open_transactions else "none open"
    return passed(name, f"{open_ones} on {logs.partition_count} partitions")


def progress(expectation: Expectation, observation: Observation) -> Check:
    """A source that moved steadily before the restart has moved since. One that was idle before owes nothing.

    A source that has run dry looks like one that is stuck. So this is inconclusive, and what moved is
    remembered by the observer alone: a roll that is taken up begins to watch progress again.
    """
    name = "progress"
    if expectation.worker_id is None:
        return passed(name, "no worker has been restarted yet")
    if observation.logs is None:
        return inconclusive(name, observation.logs_problem or "not readable", "make the topics readable")
    restarted = expectation.restarted_after
    owing = {
        connector: movement
        for connector, movement in observation.logs.movements.items()
        if movement.steady_at is not None
        and movement.steady_at >= restarted - STEADY_SECONDS
        and observation.should_run(connector)
    }
    standing = sorted(c for c, movement in owing.items() if movement.moved_since < restarted)
    if standing:
        return inconclusive(
            name,
            f"{', '.join(standing)} moved before the restart and {'has' if len(standing) == 1 else 'have'} not since",
            "see whether the source still has something to give; if it has not, apply the same plan again",
        )
    return passed(name, f"{', '.join(sorted(owing))} moved on" if owing else "no source moved steadily before")


def overdue_seconds(transaction: TransactionDescription, now: float) -> float:
    """How long a transaction is open past its timeout; negative while it is within, or if none is open.

    One whose end is decided (PrepareCommit, PrepareAbort) is open until its markers are in every partition; those take
    milliseconds, so one that is still there after its timeout waits for a broker that does not answer.
    """
    if transaction.started_at_ms is None:
        return float("-inf")
    return now - (transaction.started_at_ms + transaction.timeout_ms) / 1000
