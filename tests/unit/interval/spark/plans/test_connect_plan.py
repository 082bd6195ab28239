"""What the text of a plan shows through Spark Connect is refused by name; what it might not show is refused, too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.interval.spark.plans.connect_plan import NAMES, PlanText, judge, sent_functions

RELATION = "Relation [key#17,value#18] parquet"
FILES = f"Project [key#17]\n+- {RELATION}"

#: The plan of a frame whose key is what a Python function makes.
PYTHON = PlanText(
    f"key: string\nProject [f(key#17)#19 AS key#20]\n+- {RELATION}",
    f"Project [pythonUDF0#24 AS key#20]\n+- ArrowEvalPython [f(key#17)#19], [pythonUDF0#24], 101\n   +- {RELATION}",
)


def explained(analyzed: str, optimized: str = FILES, physical: str = "*(1) Project [key#17]") -> str:
    return (
        f"== Parsed Logical Plan ==\n'Project ['key]\n\n== Analyzed Logical Plan ==\nkey: string\n{analyzed}\n\n"
        f"== Optimized Logical Plan ==\n{optimized}\n\n== Physical Plan ==\n{physical}\n"
    )


def judged(analyzed: str, optimized: str = FILES) -> bool:
    return judge(PlanText.of(explained(analyzed, optimized)), [], [])


def test_files_and_what_the_optimizer_takes_out_are_certain() -> None:
    assert judged(f"Project [key#17, uuid(Some(1)) AS value#3, first(v#1, false) AS f#2]\n+- {RELATION}")


@pytest.mark.parametrize(
    "node",
    [
        "Window [row_number() windowspecdefinition(key#1) AS n#2]",
        "RelationV2[key#1] jdbc",
        "Relation [key#17] JDBCRelation(t) [numPartitions=1]",
        "HiveTableRelation [`default`.`t`, key#1]",
        "InMemoryRelation [key#1], StorageLevel(disk)",
        "a line of a constant",
    ],
)
def test_what_is_not_known_to_stay_is_accepted_without_certainty(node: str) -> None:
    assert not judged(f"Project [key#17]\n+- {node}", f"Project [key#17]\n+- {node}")


@pytest.mark.parametrize("function", sorted(NAMES - {"now"}))
def test_each_function_that_depends_on_more_than_its_row_is_refused(function: str) -> None:
    made = f"Project [{function.upper()}(1) AS key#20]\n+- {RELATION}"
    with pytest.raises(ConfigurationError, match=function):
        judged(made, made)


@pytest.mark.parametrize(
    "part",
    [
        *("now()", "cast(now as timestamp)", "cast(trim(today) as date)", "to_timestamp(now, None)"),
        *("cast('now' as date)", "cast(concat(to, day) as date)", "CAST(left(yesterday, 9) AS timestamp_ntz)"),
    ],
)
def test_the_clock_is_refused_wherever_it_is(part: str) -> None:
    with pytest.raises(ConfigurationError, match="another value in each attempt"):
        judged(f"Project [key#17, ({part} > key#17) AS value#3]\n+- {RELATION}")


@pytest.mark.parametrize(
    "part", ["cast(now#5 as timestamp)", "cast(2013-01-01 as timestamp)", "(key#1 = now)", "cast(trim(d#1) as date)"]
)
def test_what_only_resembles_a_clock_is_accepted(part: str) -> None:
    assert judged(f"Filter {part}\n+- {RELATION}")


@pytest.mark.parametrize(
    "node", ["GlobalLimit 5", "Sample 0.0, 0.5, false, 1", "Offset 3", "LogicalRDD [key#1], false"]
)
def test_a_node_that_drops_rows_is_found_in_any_branch(node: str) -> None:
    """A source may take a limit over, so that it is gone from the optimized plan."""
    with pytest.raises(ConfigurationError, match="The rows of a slice depend on"):
        judged(f"Join Inner\n:- {RELATION}\n+- Project [key#17]\n   :  +- {node}\n      +- {RELATION}")


@pytest.mark.parametrize("evaluated", ["LocalRelation [key#35]", "InMemoryRelation [key#1], StorageLevel(disk)"])
def test_what_was_evaluated_beforehand_is_looked_for_where_it_was_made(evaluated: str) -> None:
    with pytest.raises(ConfigurationError, match=r"rand\(\)"):
        judged("Project [rand(5) AS key#35]\n+- LocalRelation [a#1]", evaluated)


@pytest.mark.parametrize(
    "text",
    [
        explained(f"Filter (v#1 = a\n== Optimized Logical Plan ==\nb)\n+- {RELATION}"),
        explained(RELATION, physical="x\n== Physical Plan =="),
        explained(f"Project [a#1, ... 15 more fields]\n+- {RELATION}"),
        explained(RELATION).partition("== Physical")[0],
        "",
    ],
)
def test_a_text_that_is_cut_short_or_misleading_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="incomplete, or a constant"):
        PlanText.of(text)


def test_functions_of_python_are_trusted_as_far_as_they_are_known() -> None:
    assert judge(PYTHON, [True, True], ["other"]) is False
    with pytest.raises(ConfigurationError, match="marked as not deterministic"):
        judge(PYTHON, [True, False], [])
    with pytest.raises(ConfigurationError, match="registered function f"):
        judge(PYTHON, [], ["f"])
    viewed = PlanText(f"{PYTHON.analyzed}\n   +- View (`spark_catalog`.`default`.`v`, [key#17])", PYTHON.optimized)
    with pytest.raises(ConfigurationError, match="a Python function and a view"):
        judge(viewed, [True], [])


@pytest.mark.parametrize("name", ["`v`", "`global_temp`.`v`", "`a b``c`"])
def test_temporary_views_are_refused_since_their_names_may_change_their_meaning(name: str) -> None:
    made = f"Project [key#17]\n+- SubqueryAlias v\n   :- View ({name}, [key#17])\n      +- {RELATION}"
    with pytest.raises(ConfigurationError, match="The rows of a slice depend on the temporary view"):
        judge(PlanText(made, RELATION), [], [])
    assert judge(PlanText(made.replace(name, "`_pyspark_connect_temp_view_0f`"), RELATION), [], []), (
        "of a query's frame"
    )


def test_session_variables_are_refused() -> None:
    made = f"Filter (key#17 > variablereference(system.session.least=2))\n+- {RELATION}"
    with pytest.raises(ConfigurationError, match="a session variable, which is read in each action"):
        judge(PlanText(made, RELATION), [], [])


@pytest.mark.parametrize(
    "call", ["BY_NAME(key#17)", "default.by_name(key#17)", "UDF(key#17)", "HiveGenericUDF#a.B(key#1)"]
)
def test_registered_functions_of_any_language_are_refused(call: str) -> None:
    made = f"Project [{call} AS key#20]\n+- {RELATION}"
    with pytest.raises(ConfigurationError, match="registered function"):
        judge(PlanText(made, made), [], ["by_name"])


@pytest.fixture
def unconnected() -> Iterator[Any]:
    """A session of the real client. There is no server; a plan is made without one."""
    from pyspark.sql.connect.session import SparkSession as RemoteSession

    session = RemoteSession("sc://127.0.0.1:1")
    yield session
    session.client.close()  # or else it looks for its server when the process ends


def test_the_functions_that_a_plan_brings_along_are_found_wherever_they_are(unconnected: Any) -> None:
    from pyspark.sql.connect.functions import col, udf, when

    rows = unconnected.range(3)
    plain, chance = udf(lambda value: value), udf(lambda value: value).asNondeterministic()
    frame = rows.select(when(col("id") > 1, plain("id")).alias("a")).join(rows.where(chance("id") == "1"))
    assert sorted(sent_functions(frame._plan.plan(unconnected.client))) == [False, True]
    assert not list(sent_functions(rows._plan.plan(unconnected.client)))


def test_every_function_of_sparks_that_is_not_deterministic_is_looked_for(spark: SparkSession) -> None:
    """Also those that a later version brings."""
    jvm: Any = spark._jvm
    registry = getattr(jvm.org.apache.spark.sql.catalyst.analysis, "FunctionRegistry$").__getattr__("MODULE$").builtin()
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    trait = jvm.java.lang.Class.forName("org.apache.spark.sql.catalyst.expressions.Nondeterministic", False, loader)
    functions, found = registry.listFunction().iterator(), set()
    while functions.hasNext():
        name = functions.next()
        kind = jvm.java.lang.Class.forName(registry.lookupFunction(name).get().getClassName(), False, loader)
        if trait.isAssignableFrom(kind):
            found.add(str(name.funcName()))
    assert len(found) > 10
    assert found - NAMES == {"input_file_name"}  # the files are held
