"""What a change of a group is: its request, its plan, and how it is carried out.

A declaration imports no client at the top of its module: the command line and DAG files read it to draw help and forms.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar, get_args, get_type_hints

from airflow_eos_provider.changes.leaf import Leaf
from airflow_eos_provider.errors import ConfigurationError, EosError, PlanMovedError
from airflow_eos_provider.plan_hash import HashedPlan, hash_of

if TYPE_CHECKING:
    from airflow_eos_provider.connect.cluster.description import ConnectCluster
    from airflow_eos_provider.connect.session import ConnectSession
    from airflow_eos_provider.journal.change import GroupChange

R = TypeVar("R")

SCHEMA = 1

#: So many lines of a plan have room above the buttons of its approval, and are kept in the journal.
MOST_LINES = 300


# The request


@dataclass(frozen=True, slots=True)
class Option:
    """One field of a request, as a person gives it.

    :param help: what it means: of the option, in the form, in the reference.
    :param title: in the form of a DAG. A field without one is no part of the form; the author of the DAG gives it.
    :param argument: whether the command takes it without ``--name``.
    :param metavar: stands for the value in the help.
    :param least: the smallest number.
    :param completes: what the shell completes; ``connector``, ``run``, ``verb`` or nothing.
    :param looks: whether ``list`` takes it, too.
    :param envvar: the environment variable that stands for the option.
    """

    help: str
    title: str = ""
    argument: bool = False
    metavar: str = ""
    least: float = -math.inf
    completes: str = ""
    looks: bool = True
    envvar: str = ""


def option(help: str, default: Any = MISSING, **more: Any) -> Any:
    """A field of a request. Without a default it is required.

    :param more: as :class:`Option` takes it.
    """
    return field(default=default, metadata={"option": Option(help, **more)})


def options(request: type) -> dict[str, tuple[Option, Field[Any]]]:
    """The fields of a request, by name."""
    return {each.name: (each.metadata["option"], each) for each in fields(request)}


def kind_of(request: type, name: str) -> type:
    """The type of a field: ``bool``, ``int``, ``float``, ``str``, ``tuple`` or a :class:`~enum.StrEnum`."""
    hint = get_type_hints(request)[name]
    if args := [each for each in get_args(hint) if each is not type(None) and each is not ...]:
        return tuple if getattr(hint, "__origin__", None) is tuple else args[0]
    found: type = hint
    return found


def read_request(request: type[R], given: Mapping[str, Any]) -> R:
    """A request from what a command line, a form, a template or a plan's document has given.

    Words may stand for other values, as a template gives them: ``True``, ``3``, ``a, b``. None is not given; nor is an
    empty word, but where the field is text.

    :raises ConfigurationError: a field is missing or unknown, or a value is none of its type.
    """
    known = options(request)
    if unknown := given.keys() - known.keys():
        raise ConfigurationError(f"Unknown: {', '.join(sorted(unknown))}.", expected=", ".join(known))
    kinds = {name: kind_of(request, name) for name in known}
    values = {
        name: _read(name, kinds[name], known[name][0], value)
        for name, value in given.items()
        if value is not None and (value != "" or kinds[name] is str)
    }
    missing = [name for name, (_, each) in known.items() if each.default is MISSING and values.get(name) in (None, "")]
    if missing:
        raise ConfigurationError(f"Missing: {', '.join(missing)}.")
    return request(**values)


def _read(name: str, kind: type, option: Option, value: Any) -> Any:
    if kind is tuple:
        words = value.split(",") if isinstance(value, str) else map(str, value)
        return tuple(word.strip() for word in words if word.strip())
    if kind is bool:
        if str(value).lower() not in ("true", "false"):
            raise ConfigurationError(f"{name} is {value!r}.", expected="true or false")
        return str(value).lower() == "true"
    try:
        found = kind(value)
        if kind in (int, float) and not option.least <= found < math.inf:
            raise ValueError
    except (TypeError, ValueError):
        raise ConfigurationError(f"{name} is {value!r}.", expected=_expected(kind, option)) from None
    return found


def _expected(kind: type, option: Option) -> str:
    if issubclass(kind, StrEnum):
        return f"one of {', '.join(kind)}"
    number = "a whole number" if kind is int else "a number"
    return f"{number} from {option.least:g} on" if option.least > -math.inf else number


# The plan


@dataclass(frozen=True, slots=True)
class Plan(HashedPlan):
    """What a change would do. A person approves it by its hash, and the journal keeps it.

    :param kind: the change's name.
    :param about: what is changed, in a few words, such as the connector.
    :param question: one line, which the approver answers.
    :param lines: what happens, for a person; not part of the hash.
    :param content: what is done and what that rests on, as JSON; another content is another plan.
    :param request: what was asked for, as JSON; the plan is made from it again before it is carried out.
    :param nothing: why there is nothing to do; empty if there is.
    :param is_unfinished: whether it was begun and not finished, so that it is taken up.
    :param needs_hash: why the plan itself must be confirmed: ``--yes`` is not enough; empty if it is.
    """

    kind: str
    group_id: str
    about: str
    question: str
    lines: tuple[str, ...]
    content: Mapping[str, Any]
    request: Mapping[str, Any]
    nothing: str = ""
    is_unfinished: bool = False
    needs_hash: str = ""

    @property
    def hash(self) -> str:
        """SHA-256 over the change, the group and the content, in hexadecimal."""
        return hash_of({"kind": self.kind, "schema": SCHEMA, "group_id": self.group_id, "content": self.content})

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON. Scripts rely on the names."""
        return {
            "kind": self.kind,
            "schema": SCHEMA,
            "group_id": self.group_id,
            "about": self.about,
            "question": self.question,
            "lines": list(self.lines),
            "content": self.content,
            "request": self.request,
            "nothing_to_do": self.nothing,
            "unfinished": self.is_unfinished,
            "needs_hash": self.needs_hash,
            "hash": self.hash,
        }

    @classmethod
    def from_dict(cls, document: Any, kind: str = "") -> Plan:
        """Read :meth:`to_dict` back.

        :param kind: the change that is meant; empty for any.
        :raises ConfigurationError: it is no plan, or one of another change or schema, or its content does not have its
            hash.
        """
        try:
            if document["schema"] != SCHEMA or kind not in ("", document["kind"]):
                raise ValueError(f"{document['kind']}, schema {document['schema']}")
            names = ("kind", "group_id", "about", "question")
            plan = cls(
                **{name: str(document[name]) for name in names},
                lines=tuple(map(str, document["lines"])),
                content=document["content"],
                request=document["request"],
                nothing=str(document["nothing_to_do"]),
                is_unfinished=bool(document["unfinished"]),
                needs_hash=str(document["needs_hash"]),
            )
            if plan.hash != document["hash"]:
                raise ValueError("its content does not have its hash")
        except (KeyError, TypeError, ValueError) as error:
            found = f"{type(error).__name__}: {error}"
            raise ConfigurationError(
                f"That is no plan of {kind or 'a change'} ({found}).",
                remedy="Make the plan again; it is carried out as it was made.",
            ) from error
        return plan

    def require(self, plan_hash: str) -> None:
        """Go on only if this plan, made now, is the one that is meant.

        :raises PlanMovedError: it is another one.
        """
        if not self.hash.startswith(plan_hash):
            now = "; ".join(line.strip() for line in self.lines[:MOST_LINES]) or self.nothing
            raise PlanMovedError(
                f"The plan {plan_hash[:12]} does not fit any more: the plan is {self.short_hash} now: {now}",
                remedy="Look at the plan again, and apply that one.",
            )


# Looks and reports


@dataclass(frozen=True, slots=True)
class Look:
    """What a change would meet. Nothing is changed.

    :param document: as JSON; what the page shows, and what ``list --json`` prints.
    :param names: of what was found, for ``-o name``.
    :param lines: for a person; given whether all of it is wanted.
    """

    document: Mapping[str, Any]
    names: Sequence[str]
    lines: Callable[[bool], Iterable[str]]


class Report(Protocol):
    """What was done."""

    @property
    def problem(self) -> EosError | None:
        """What did not come to its end; the command ends with it."""

    def lines(self) -> Iterable[str]:
        """The same for a person."""

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON."""


class Change(ABC, Generic[R]):
    """A change of a group. A subclass declares it; each surface is derived from that.

    :cvar name: its command without ``eos``, such as ``fencing apply``; also its kind in the journal, and the entry of
        its rights in ``acls/tool_rules.py``, unless it needs brokers only.
    :cvar title: of the form and the approval, such as ``Fence connectors``.
    :cvar summary: one line for the list of commands.
    :cvar details: what a person has to know besides; paragraphs.
    :cvar request: a frozen dataclass whose fields are made by :func:`option`.
    :cvar examples: whole commands, each perhaps with a remark behind ``#``.
    :cvar leaves: what it leaves behind, besides the journal.
    :cvar takes_lease: whether it holds the group's lease. Without it nothing is journalled.
    :cvar brokers_only: whether it needs no worker: a cluster file need not describe any, and a connection of type
        ``kafka`` will do.
    :cvar rows: which member of the look's document is a list; the page shows it in parts.
    :cvar filters: members of such a row that the page can ask for.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    summary: ClassVar[str]
    details: ClassVar[str] = ""
    request: ClassVar[type]
    examples: ClassVar[tuple[str, ...]] = ()
    leaves: ClassVar[tuple[Leaf, ...]] = ()
    takes_lease: ClassVar[bool] = True
    brokers_only: ClassVar[bool] = False
    rows: ClassVar[str] = ""
    filters: ClassVar[tuple[str, ...]] = ()

    def session(self, cluster: ConnectCluster) -> ConnectSession:
        """The clients that it needs; they end with the block."""
        from airflow_eos_provider.connect.session import ConnectSession

        return ConnectSession(cluster)

    @abstractmethod
    def plan(self, session: ConnectSession, request: R) -> Plan:
        """Look, and decide what to do. Changes nothing."""

    @abstractmethod
    def apply(
        self, session: ConnectSession, plan: Plan, act: GroupChange | None, report: Callable[[str], None]
    ) -> Report:
        """Carry a plan out that was made a moment ago, or take up one that was begun.

        :param act: announces each step in the journal; None without a lease.
        :param report: receives one line of progress at a time.
        """

    def look(self, session: ConnectSession, request: R) -> Look:
        """What there is, for the page and the command ``list``; only of a change that has :attr:`rows`."""
        raise NotImplementedError

    def done_before(self, session: ConnectSession, plan: Plan) -> Report | None:
        """The report of a plan that the journal has as done, if nothing of it is due again: its caller was killed."""
        return None

    def takes_up(self, request: R, unfinished: Plan) -> bool:
        """Whether a request goes on with a change of this kind that was begun and not finished."""
        return True
