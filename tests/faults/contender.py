"""One of two controllers that want the same group at the same instant; each act is a line in a file of both.

Reads ``GROUP MOMENT`` lines (seconds since the epoch), and answers each with what became of it.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from airflow_eos_provider.errors import FencedError, LeaseHeldError, UnreachableError
from airflow_eos_provider.journal.journal import Journal, read_journal
from airflow_eos_provider.journal.records import RolloutRecord, RolloutState, Step, StepStatus
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings

#: As long as an act takes here, and by when it has to be over: the answer to its permission may be late, and so may
#: this process be on a busy machine.
ACT_SECONDS = 0.15
OVER_SECONDS = 3.0


def contend(settings: KafkaSettings, group: str, acts: Path) -> str:
    journal = Journal(settings, group, lease_seconds=5.0, act_seconds=OVER_SECONDS)
    rollout = RolloutRecord(f"{os.getpid()}-{time.time()}", {}, {}, RolloutState.RUNNING, time.time())
    try:
        content = journal.acquire()
        journal.begin(rollout, superseded=content.rollouts.values())
        journal.record(Step("w1:8083", StepStatus.INTENT, time.time()))
        over_by = time.monotonic() + OVER_SECONDS
        journal.confirm("w1:8083: stop")
        is_in_time = act(acts, over_by)
        journal.record(Step("w1:8083", StepStatus.PASSED, time.time()))
        journal.end(rollout)
    except LeaseHeldError:
        return "refused"
    except FencedError:
        return "fenced"
    except UnreachableError:
        # Kafka 4.3.1 may answer a commit that meets an init of the same id with "unknown error". A step that cannot be
        # announced is not done. Whether the lease is on record is open, so it is waited out, as a person would have to.
        _wait_out(settings, group)
        return "unanswered"
    finally:
        journal.close()
    return "through" if is_in_time else "late"


def _wait_out(settings: KafkaSettings, group: str) -> None:
    while (
        (lease := read_journal(settings, group).lease) is not None
        and not lease.released
        and time.time() < lease.expires_at
    ):
        time.sleep(0.05)


def act(acts: Path, over_by: float) -> bool:
    """Write down when the act began and ended, by the machine's monotonic clock.

    :returns: whether it was over in time. One that was not, since the machine held this process up, is not written
        down: nobody waits for it, and a real one is ended by its machine.
    """
    began = time.monotonic()
    time.sleep(ACT_SECONDS)
    ended = time.monotonic()
    if ended > over_by:
        return False
    descriptor = os.open(acts, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, f"{began} {ended}\n".encode())
    finally:
        os.close(descriptor)
    return True


if __name__ == "__main__":
    kafka = KafkaSettings.of(sys.argv[1])
    for line in sys.stdin:
        name, moment = line.split()
        time.sleep(max(0.0, float(moment) - time.time()))
        sys.stdout.write(contend(kafka, name, Path(sys.argv[2])) + "\n")
        sys.stdout.flush()
