"""The base of a change of a group, with its request, plan and report.

A module that declares a change imports no client at its top: the command line and DAG files import it for help and
forms.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar, get_args, get_type_hints

from airflow_eos_provider.errors import ConfigurationError, EosError, PlanMovedError
from airflow_eos_provider.plan_hash import HashedPlan, hash_of
from airflow_eos_provider.stored import from_json, to_json

if TYPE_CHECKING:
    from airflow_eos_provider.acls.tool_rules import Need, Needs, ToolFacts
    from airflow_eos_provider.connect.cluster.description import ConnectCluster
    from airflow_eos_provider.connect.connect_session import ConnectSession

R = TypeVar("R")

TAKE_OVER_HELP = "Take the group's lease from another controller and stop that one. The journal records it."

#: Lines of a plan that are shown above the buttons of its approval and stored in the journal.
MOST_LINES = 300


# The request


@dataclass(frozen=True, slots=True)
class Option:
    """How the command line and the form of a DAG offer one field of a request."""

    help: str  #: its description on the command line, in the form and in the reference
    title: str = ""  #: its title in the form of a DAG. Without one it is not in the form; the DAG's author sets it
    argument: bool = False  #: whether the command takes it without ``--name``
    flag: str = ""  #: its name on the command line, such as ``--from``; empty: made from the field's name
    metavar: str = ""  #: the placeholder for its value in the help
    least: float | None = None  #: the smallest valid number; None: any
    completes: str = ""  #: what the shell completes: ``connector``, ``file``, ``run`` or ``verb``; empty: nothing
    looks: bool = True  #: whether ``list`` takes it, too
    envvar: str = ""  #: an environment variable that sets it


def option(help: str, default: Any = MISSING, **more: Any) -> Any:
    """A field of a request. Without a default it is required."""
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
    """Read a request from the values of a command line, a form, a template or a plan's document.

    A value may be a string, as templates render it: ``True``, ``3``, ``a, b``. None selects the default; so does an
    empty string, unless the field is text.
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
        if kind in (int, float) and not (found < math.inf and (option.least is None or option.least <= found)):
            raise ValueError
    except (TypeError, ValueError):
        raise ConfigurationError(f"{name} is {value!r}.", expected=_expected(kind, option)) from None
    return found


def _expected(kind: type, option: Option) -> str:
    if issubclass(kind, StrEnum):
        return f"one of {', '.join(kind)}"
    number = "a whole number" if kind is int else "a number"
    return number if option.least is None else f"{number} from {option.least:g} on"


# The plan


@dataclass(frozen=True, slots=True)
class Plan(HashedPlan):
    """The actions of a change. A person approves them by the plan's hash; the journal stores the plan."""

    SCHEMA: ClassVar[int] = 2

    kind: str  #: the change's name
    group_id: str
    about: str  #: the subject in a few words, such as the connector
    question: str  #: one line for the approver to answer
    lines: tuple[str, ...]  #: the actions in words; not part of the hash
    content: Mapping[str, Any]  #: the actions and the cluster state that they depend on, as JSON; hashed
    request: Mapping[str, Any]  #: the request as JSON; the plan is made again from it and compared before it is applied
    nothing: str = ""  #: why there is nothing to do; empty if there is something to do
    is_unfinished: bool = False  #: whether it was begun and not finished; applying it resumes it
    needs_hash: str = ""  #: why ``--yes`` is not enough and ``--plan`` is required; empty if ``--yes`` is enough

    @property
    def hash(self) -> str:
        """SHA-256 of the change's name, the group and the content, in hexadecimal."""
        return hash_of({"kind": self.kind, "schema": self.SCHEMA, "group_id": self.group_id, "content": self.content})

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON. Scripts rely on the names."""
        return {**to_json(self), "hash": self.hash}

    @classmethod
    def from_dict(cls, document: Any, kind: str = "") -> Plan:
        """Read :meth:`to_dict` back."""
        try:
            plan = from_json(cls, document)
            if kind not in ("", plan.kind):
                raise ValueError(f"it is one of {plan.kind}")
            if plan.hash != document["hash"]:
                raise ValueError("its content does not have its hash")
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            found = f"{type(error).__name__}: {error}"
            raise ConfigurationError(
                f"That is no plan of {kind or 'a change'} ({found}).",
                remedy="Make the plan again and do not edit it.",
            ) from error
        return plan

    def require(self, plan_hash: str, moved: str = "") -> None:
        """Check that this plan, made now, has the hash that was confirmed."""
        if not self.hash.startswith(plan_hash):
            now = moved or "; ".join(line.strip() for line in self.lines[:MOST_LINES]) or self.nothing
            raise PlanMovedError(
                f"The plan {plan_hash[:12]} does not fit any more: the plan is {self.short_hash} now: {now}",
                remedy="Review the new plan and apply it.",
            )


# Looks and reports


@dataclass(frozen=True, slots=True)
class Look:
    """The current state of what a change alters."""

    document: Mapping[str, Any]  #: as JSON; for the page and ``list --json``
    names: Sequence[str]  #: the names that ``-o name`` prints
    lines: Callable[[bool], Iterable[str]]  #: the text that ``list`` prints; called with True for ``-o wide``


class Report(Protocol):
    """The result of a change."""

    @property
    def problem(self) -> EosError | None:
        """Why a part of the change failed; the command exits with this error. None if all of it is done."""

    def lines(self) -> Iterable[str]:
        """The result in words."""

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON."""


@dataclass(frozen=True, slots=True)
class Done:
    """A report of a few lines."""

    document: dict[str, Any]  #: scripts rely on its names
    text: tuple[str, ...] = ("Done.",)
    problem: EosError | None = None

    @classmethod
    def of_connectors(cls, reports: Sequence[Report]) -> Done:
        """The report of several connectors. Its problem combines theirs."""
        problems = [each.problem for each in reports if each.problem]
        problem = problems[0] if problems else None
        if len(problems) > 1:
            problem = EosError("; ".join(each.found for each in problems), remedy=problems[0].remedy)
        lines = tuple(line for each in reports for line in each.lines())
        return cls({"connectors": [each.to_dict() for each in reports]}, lines, problem)

    def lines(self) -> tuple[str, ...]:
        return self.text

    def to_dict(self) -> dict[str, Any]:
        return self.document


class Change(ABC, Generic[R]):
    """A change of a group. A subclass declares it; its command, operators, DAG and page are made from that."""

    #: Its command without ``eos``, such as ``fencing apply``; also its kind in the journal.
    name: ClassVar[str]
    title: ClassVar[str]  #: the title of the form and the approval, such as ``Fence connectors``
    summary: ClassVar[str]  #: one sentence for the list of commands
    details: ClassVar[str] = ""  #: further help, in paragraphs
    request: ClassVar[type]  #: a frozen dataclass whose fields are made by :func:`option`
    examples: ClassVar[tuple[str, ...]] = ()  #: complete commands, each optionally with a comment after ``#``
    #: The function that makes its DAG, such as ``fence_dag``. The DAG is then ``connect_fence``; ``fence`` if it needs
    #: brokers only.
    dag: ClassVar[str]
    rights: ClassVar[tuple[Needs, ...]] = ()  #: of ``acls/tool_rules.py``; none if it needs brokers only
    #: Whether it holds the group's lease. Without the lease it is not recorded in the journal.
    takes_lease: ClassVar[bool] = True
    #: Whether an unfinished one is closed, and begun again by a plan for what it has left.
    begins_again: ClassVar[bool] = False
    #: Whether it closes a roll or another change, rather than is recorded as one. Whether it takes over is part of its
    #: request, because its plan depends on that.
    closes: ClassVar[bool] = False
    #: Whether it needs no worker. Then the cluster file need not describe workers, and a connection of type ``kafka``
    #: is enough.
    brokers_only: ClassVar[bool] = False
    #: The member of the document of :meth:`look` that is a list; the page shows it page by page, and there is ``list``.
    rows: ClassVar[str] = ""
    filters: ClassVar[tuple[str, ...]] = ()  #: members of such a row by which the page can filter
    list_summary: ClassVar[str] = ""  #: of ``list``, as :attr:`summary`
    list_examples: ClassVar[tuple[str, ...]] = ()

    @property
    def group(self) -> str:
        """The group of its command; of a command without one its own name."""
        return self.name.split()[0]

    def needs(self, facts: ToolFacts) -> Iterator[Need]:
        """Its rights in a group."""
        for rights in self.rights:
            yield from rights(facts)

    def session(self, cluster: ConnectCluster) -> ConnectSession:
        """The clients that it needs, as a context manager that closes them."""
        from airflow_eos_provider.connect.connect_session import ConnectSession

        return ConnectSession(cluster)

    @abstractmethod
    def plan(self, session: ConnectSession, request: R) -> Plan:
        """Inspect the cluster and decide what to do. Changes nothing."""

    @abstractmethod
    def apply(self, session: ConnectSession, plan: Plan, act: Any, report: Callable[[str], None]) -> Report:
        """Carry out a plan that was made a moment ago, or resume an unfinished one.

        :param act: the :class:`~airflow_eos_provider.journal.group_change.GroupChange` that records each step in the
            journal; None without a lease; the journal itself, not acquired yet, if the change :attr:`closes` another.
        """

    def look(self, session: ConnectSession, request: R) -> Look:
        """The current state, for the page and ``list``. Define it if the change has :attr:`rows`."""
        raise NotImplementedError

    def done_before(self, session: ConnectSession, plan: Plan) -> Report | None:
        """The report of a plan that is done according to the journal; None to carry it out again.

        Called if the process that carried the plan out may have been killed before it printed the report.
        """
        return None

    def moved(self, plan: Plan, now: Plan) -> str:
        """What has changed between a plan and the same plan made now, in a few words; empty: their lines say it."""
        return ""

    def takes_up(self, request: R, unfinished: Plan) -> bool:
        """Whether a request resumes an unfinished change of this kind."""
        return True
