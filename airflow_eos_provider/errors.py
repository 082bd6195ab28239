"""The errors of this package: one small tree, each with the exit code that ``eos`` ends with.

Every message has three parts: found, expected and what to do next. A message may quote a broker, a worker or a log, so
secrets and terminal commands are removed from it.
"""

from __future__ import annotations

from airflow_eos_provider.data_text import visible
from airflow_eos_provider.redaction import redact, redact_values


class EosError(Exception):
    """Base of all errors that a user of this package may meet.

    :param found: what was seen, in one sentence.
    :param expected: what should have been there, if that is not obvious from ``found``.
    :param remedy: what to do next.
    """

    exit_code = 1

    def __init__(self, found: str, *, expected: str | None = None, remedy: str | None = None) -> None:
        self.found = visible(redact(found), keep="\n\t")
        # These are our own words, with "password: …" as an example; only a value could come from elsewhere.
        self.expected = expected and redact_values(expected)
        self.remedy = remedy and redact_values(remedy)
        parts = [self.found]
        if self.expected:
            parts.append(f"Expected: {self.expected}")
        if self.remedy:
            parts.append(f"What to do: {self.remedy}")
        super().__init__("\n".join(parts))

    def __reduce__(self) -> tuple[object, ...]:
        """Keyword arguments survive pickling, which Airflow does with a task's exception."""
        return (_rebuild, (type(self), self.found, self.expected, self.remedy))


def _rebuild(cls: type[EosError], found: str, expected: str | None, remedy: str | None) -> EosError:
    return cls(found, expected=expected, remedy=remedy)


class ConfigurationError(EosError):
    """Something the user wrote down is wrong: the cluster file, a connection, a worker's properties, an option."""

    exit_code = 2


class UnreachableError(EosError):
    """A broker, a worker or a process did not answer at all."""

    exit_code = 6


class NotKafkaConnectError(ConfigurationError):
    """The address answers, but it is not the REST API of a Kafka Connect worker."""


class ConnectRestError(EosError):
    """A Connect worker answered with an error."""

    exit_code = 6

    def __init__(self, found: str, *, status: int = 0, expected: str | None = None, remedy: str | None = None) -> None:
        super().__init__(found, expected=expected, remedy=remedy)
        self.status = status

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.found, self.expected, self.remedy), {"status": self.status})


class RestRefusedError(ConnectRestError, ConfigurationError):
    """A Connect worker refused a request, and would refuse it again; nothing was done."""

    exit_code = ConfigurationError.exit_code


class ReadTimeoutError(EosError):
    """A topic could not be read to its end in time, usually because an open transaction holds back its readers."""

    exit_code = 6


class RefusedError(EosError):
    """Acting now would break a promise, so nothing was changed."""

    exit_code = 3


class NothingDoneError(RefusedError):
    """A change was refused after it began. Everything is as it was before, so there is nothing to resume."""


class PlanMovedError(NothingDoneError):
    """The cluster is no longer as it was when the plan was made."""


class LeaseHeldError(RefusedError):
    """Another controller is rolling this group."""


class FencedError(EosError):
    """Another controller has taken over; this one may do no more."""

    exit_code = 7


class GateFailedError(EosError):
    """A worker did not pass its gate, and the roll stopped. Its configuration was put back and it was restarted.

    If that failed too, the message gives the state of the worker and of its configuration.
    """

    exit_code = 4


class RolloutPausedError(EosError):
    """It is unknown whether going on is safe, so the roll pauses with everything as it is."""

    exit_code = 5


class NotKnownError(EosError):
    """The principal lacks the rights to see the answer, so it is neither yes nor no."""

    exit_code = 5


class StopRequestedError(RolloutPausedError):
    """An operator has asked the roll to stop, for now or for good; everything is left as it is."""
