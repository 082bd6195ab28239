"""Judges a DataFrame of Spark Connect by what its client can see: the plan's text, and the functions that it sends.

In a plan's text (``explain``) a column's name or a constant may read like a function. So the text is only searched for
what must not be there: what reads like it is refused, and nothing is accepted for what could be something else.

The plan of the key's columns alone is searched, since Spark's optimizer takes out of it what decides no slice. What the
optimizer has evaluated itself (constants, the clock, a list, a cached frame) it does not show; so there the plan before
it is searched, and a clock or a limit is refused wherever it is. Temporary views and session variables are refused:
their names may have another meaning when the frame is written than when it was made.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.interval.spark.plans import slice_rules
from airflow_eos_provider.interval.spark.sessions import functions_of, quoted

__all__ = ["NAMES", "PlanText", "judge", "judge_text", "refuse_unstable_remote", "sent_functions"]

#: All functions that are looked for.
NAMES = slice_rules.CHANCE.functions | slice_rules.BY_ARRIVAL.functions | slice_rules.CLOCK.functions

_MOMENT_WORD = re.compile(
    r"\b(?:cast|to_timestamp\w*|to_date|try_to_timestamp|try_to_date|timestamp|date)\((?:\w+\(){0,64}\s*['\"]?"
    rf"(?:{slice_rules.MOMENT_WORDS})\b(?!#)",
    re.IGNORECASE,
)

#: A moment of constants that only Spark's optimizer puts together.
_MADE_UP_MOMENT = re.compile(
    r"\bcast\((?=[^#()]*\()(?:[^()#]|\((?:[^()#]|\([^()#]*\))*\))* as (?:timestamp|date)", re.IGNORECASE
)

#: What stands before a node's name in a plan's tree.
_BRANCH = re.compile(r"[\s:+\-]*")

#: Nodes that are refused wherever they are.
_LIMIT = replace(slice_rules.LIMIT, why=f"{slice_rules.LIMIT.why}; through Spark Connect its order is not seen")
_ROW_NODES = {name: rule for rule in (_LIMIT, slice_rules.SAMPLE, slice_rules.RDD) for name in rule.classes} | {
    "LimitAll": _LIMIT
}

_MOMENT = replace(slice_rules.CLOCK, why="may be another value in each attempt")

#: Parts of plans whose expressions the optimizer has evaluated, or which another plan has made.
_EVALUATED = ("LocalRelation", "OneRowRelation", "InMemoryRelation", "CommandResult")

#: Nodes, or words of their names, that run Python.
_PYTHON = re.compile(r"EvalPython|InPandas|InArrow|PythonUDTF|PythonUDF|ArrowEval|MapIn")

#: Functions of Scala, Java or Hive, as plans have them where they have no name.
_OF_THE_JVM = re.compile(r"\bUDF\(|\bHive(?=\w*UD\w)\w++#")

#: Nodes that give the same rows whenever they are evaluated, provided that their files are held.
_CERTAIN_NODES = frozenset(
    {
        *("Project", "Filter", "Aggregate", "Join", "Union", "Distinct", "Sort", "Expand", "Generate", "Range"),
        *("Repartition", "RepartitionByExpression", "RebalancePartitions", "LocalRelation"),
    }
)
_FILES = re.compile(r"Relation \S*?\[.*\] (?:parquet|orc|json|csv|text|avro|binaryFile)")

#: A view that the session may have replaced since the frame was made. pyspark's own, of frames that a query was given,
#: have names that come once.
_TEMPORARY_VIEW = re.compile(
    r"^[ \t:+\-]*View \(`(?!_pyspark_connect_temp_view_)(?:global_temp`\.`)?((?:[^`]|``)+)`, \[", re.MULTILINE
)

_HEADS = ("== Parsed Logical Plan ==", "== Analyzed Logical Plan ==", "== Optimized Logical Plan ==")
_LAST_HEAD = "== Physical Plan =="

_CUT = re.compile(r"\.\.\. \d+ more (?:fields|characters)")

#: Expressions that Spark writes into a plan's text at most; unless told otherwise 25, and the rest is left out.
_FIELDS_SETTING = "spark.sql.debug.maxToStringFields"
_MANY_FIELDS = str(1_000_000)
_settings_lock = threading.Lock()

_LOOKALIKE = (
    " If the frame uses nothing of that kind, a column or a constant of it reads like it: rename it, or write the "
    "interval by a classic session, where the plan itself is looked at."
)


@dataclass(frozen=True, slots=True)
class PlanText:
    """What ``explain`` writes of a plan."""

    analyzed: str
    optimized: str

    @classmethod
    def of(cls, text: str) -> PlanText:
        """Take the parts out of an extended ``explain``."""
        lines = text.splitlines()
        places = [[n for n, line in enumerate(lines) if line == head] for head in (*_HEADS, _LAST_HEAD)]
        firsts = [found[0] for found in places if len(found) == 1]
        if len(firsts) != len(places) or firsts != sorted(firsts) or _CUT.search(text):
            raise ConfigurationError(
                "Spark's text of the DataFrame's plan is incomplete, or a constant in it reads like one of its parts.",
                expected=f"the parts {', '.join(_HEADS)} and {_LAST_HEAD}, each once and in full",
                remedy="Set spark.sql.maxPlanStringLength and spark.sql.debug.maxToStringFields back to larger values "
                "for the session, or write the interval by a classic session.",
            )
        _, analyzed, optimized, physical = firsts
        # The first line of the analyzed plan is the schema: names and types, nothing that is evaluated.
        return cls("\n".join(lines[analyzed + 1 : optimized]), "\n".join(lines[optimized + 1 : physical]))


def refuse_unstable_remote(frame: Any, key: Sequence[str]) -> bool:
    """Check that each attempt would put the same rows into the same slices.

    :returns: whether another evaluation within an attempt is certain to have the same rows, as long as the files that
        are read stay the same.
    """
    slice_rules.require_batch(frame)
    column = functions_of(frame).col
    text = PlanText.of(_explained(frame.select(*(column(quoted(name)) for name in key))))
    functions = list(sent_functions(frame._plan.plan(frame.sparkSession.client)))
    registered = frame.sparkSession.sql("SHOW USER FUNCTIONS").collect()
    return judge(text, functions, [str(row[0]).rpartition(".")[2] for row in registered])  # without their databases


def judge(text: PlanText, deterministic: Sequence[bool], named: Iterable[str]) -> bool:
    """As :func:`refuse_unstable_remote`, of what was asked."""
    judge_text(text)
    if view := _TEMPORARY_VIEW.search(text.analyzed):
        raise slice_rules.refusal(
            f"the temporary view {view[1]}",
            "Spark Connect looks up by its name in each action, when another interval's function may have replaced it",
            remedy="Give the DataFrame itself to the query: spark.sql('select … from {rows}', rows=frame); or write "
            "the interval by a classic session.",
        )
    if variable := _first_of(["variablereference"], text.analyzed):
        rule = slice_rules.Rule("is read in each action, when its value may be another one")
        raise rule.refusal(f"{variable}: a session variable", hint=_LOOKALIKE)
    hidden = [name for name in named if re.search(rf"\b{re.escape(name)}\(", text.analyzed, re.IGNORECASE)]
    if hidden or _OF_THE_JVM.search(text.analyzed):
        raise _hiding(f"the registered function {hidden[0] if hidden else 'of a JVM'}")
    if not _PYTHON.search(text.optimized):
        return all(_is_certain(line) for line in text.optimized.splitlines() if line.strip())
    if not all(deterministic):
        raise slice_rules.refusal(
            "a Python function that is marked as not deterministic", "may give another value each time"
        )
    if re.search(r"^[ \t:+\-]*View \(", text.analyzed, re.MULTILINE):
        raise _hiding("a Python function and a view, which may hold one")
    return False


def _hiding(what: str) -> ConfigurationError:
    return slice_rules.refusal(
        what,
        "may say that it is not deterministic, which is not seen through Spark Connect",
        remedy="Apply the function to the frame's columns (functions.udf) and read tables or files, no views; or write "
        "the interval by a classic session.",
    )


def judge_text(text: PlanText) -> None:
    """Refuse what a plan's text shows."""
    for line in (*text.analyzed.splitlines(), *text.optimized.splitlines()):
        if (node := _node(line)) in _ROW_NODES:
            raise _ROW_NODES[node].refusal(hint=_LOOKALIKE)
    if clock := _first_of(slice_rules.CLOCK.functions, text.analyzed):
        raise slice_rules.CLOCK.refusal(clock, hint=_LOOKALIKE)
    for pattern in (_MOMENT_WORD, _MADE_UP_MOMENT):
        if moment := pattern.search(text.analyzed):
            raise _MOMENT.refusal(f"{moment.group(0)}…", hint=_LOOKALIKE)
    searched = text.optimized
    if any(part in text.optimized for part in _EVALUATED):
        searched += "\n" + text.analyzed
    for rule in (slice_rules.CHANCE, slice_rules.BY_ARRIVAL):
        if found := _first_of(rule.functions, searched):
            raise rule.refusal(found, hint=_LOOKALIKE)


def _first_of(names: Iterable[str], text: str) -> str | None:
    """The first of the functions that a text seems to call."""
    found = re.search(rf"(?<![A-Za-z0-9_])({'|'.join(sorted(names))})\(", text, re.IGNORECASE)
    return None if found is None else f"{found.group(1).lower()}()"


def _node(line: str) -> str:
    """The name of the node that a line describes."""
    return re.split(r"[\s(\[<]", _BRANCH.sub("", line, count=1), maxsplit=1)[0]


def _is_certain(line: str) -> bool:
    rest = _BRANCH.sub("", line, count=1)
    return _node(line) in _CERTAIN_NODES or _FILES.fullmatch(rest) is not None


def _explained(frame: Any) -> str:
    """The text of a frame's plan, in full."""
    text = str(frame._explain_string(extended=True))
    if not _CUT.search(text):
        return text
    settings = frame.sparkSession.conf
    with _settings_lock:  # others of this process write through the same session
        before = settings.get(_FIELDS_SETTING)
        settings.set(_FIELDS_SETTING, _MANY_FIELDS)
        try:
            return str(frame._explain_string(extended=True))
        finally:
            settings.set(_FIELDS_SETTING, before)


def sent_functions(message: Any) -> Iterator[bool]:
    """Of each Python function in a plan as the client sends it, whether it says that it is deterministic."""
    if message.DESCRIPTOR.name in ("CommonInlineUserDefinedFunction", "CommonInlineUserDefinedTableFunction"):
        yield bool(message.deterministic)
    for _, value in message.ListFields():
        if hasattr(value, "ListFields"):
            yield from sent_functions(value)
        elif not isinstance(value, str | bytes | int | float):
            within = value.values() if hasattr(value, "values") else value
            for inner in within:
                if hasattr(inner, "ListFields"):
                    yield from sent_functions(inner)
