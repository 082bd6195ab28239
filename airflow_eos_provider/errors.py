"""The errors of this package: one small tree, each with the exit code that ``eos`` ends with.

Every message says what was found, what was expected and what to do next. Nothing in a message is secret.
"""

from __future__ import annotations


class EosError(Exception):
    """Base of all errors that a user of this package may meet.

    :param found: what was seen, in one sentence.
    :param expected: what should have been there, if that is not obvious from ``found``.
    :param remedy: what to do next.
    """

    exit_code = 1

    def __init__(self, found: str, *, expected: str | None = None, remedy: str | None = None) -> None:
        self.found = found
        self.expected = expected
        self.remedy = remedy
        parts = [found]
        if expected:
            parts.append(f"Expected: {expected}")
        if remedy:
            parts.append(f"What to do: {remedy}")
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
    """A Connect worker answered with an error.

    :ivar status: the HTTP status code.
    """

    exit_code = 6

    def __init__(self, found: str, *, status: int = 0, expected: str | None = None, remedy: str | None = None) -> None:
        super().__init__(found, expected=expected, remedy=remedy)
        self.status = status

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.found, self.expected, self.remedy), {"status": self.status})


class ReadTimeoutError(EosError):
    """A topic could not be read to its end in time, mostly for an open transaction that holds back its readers."""

    exit_code = 6


class RefusedError(EosError):
    """Acting now would break a promise, so nothing was changed."""

    exit_code = 3


class PlanMovedError(RefusedError):
    """The cluster is no longer as it was when the plan was made."""


class LeaseHeldError(RefusedError):
    """Another controller is rolling this group."""


class FencedError(EosError):
    """Another controller has taken over; this one may do no more."""

    exit_code = 7


class GateFailedError(EosError):
    """A worker did not pass its gate: the roll stopped and that worker's configuration was put back."""

    exit_code = 4


class RolloutPausedError(EosError):
    """It cannot be told whether it is safe to go on, so the roll stands still with everything as it is."""

    exit_code = 5


class StopRequestedError(RolloutPausedError):
    """Somebody has asked the roll to stop, for now or for good; everything is left as it is."""
