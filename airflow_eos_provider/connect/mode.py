"""The three modes of a worker's ``exactly.once.source.support`` (KIP-618; Connect's ``ExactlyOnceSourceSupport``)."""

from __future__ import annotations

from enum import StrEnum

from airflow_eos_provider.errors import ConfigurationError

#: The worker property that this package exists for.
MODE_PROPERTY = "exactly.once.source.support"


class Mode(StrEnum):
    """A worker's mode. Callers ask what a mode does; they do not compare names."""

    DISABLED = "disabled"
    PREPARING = "preparing"
    ENABLED = "enabled"

    @property
    def uses_transactional_leader(self) -> bool:
        """Whether such a worker, as leader, writes the config topic by a transactional producer."""
        return self is not Mode.DISABLED

    @property
    def runs_exactly_once_tasks(self) -> bool:
        """Whether such a worker fences zombies before it starts a source task and lets it write in transactions."""
        return self is Mode.ENABLED

    def may_live_beside(self, other: Mode) -> bool:
        """Whether KIP-618 allows workers of the two modes in one group: neighbours may, disabled and enabled not."""
        return abs(_ORDER.index(self) - _ORDER.index(other)) <= 1

    def is_above(self, other: Mode) -> bool:
        return _ORDER.index(self) > _ORDER.index(other)

    @classmethod
    def parse(cls, text: str) -> Mode:
        """The mode of this name, in any case, as Connect reads it."""
        try:
            return cls(text.strip().lower())
        except ValueError as error:
            raise ConfigurationError(
                f"{MODE_PROPERTY} is {text.strip()!r}.", expected="disabled, preparing or enabled"
            ) from error


_ORDER = (Mode.DISABLED, Mode.PREPARING, Mode.ENABLED)
