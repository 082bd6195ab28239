"""A Python that cannot be used for an interval run, in words: the driver's before a run begins, an executor's after."""

from __future__ import annotations

import re

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.interval.python_needs import SHIP_IT


def require_pandas() -> None:
    """Check that the driver has the pandas that pyspark asks for where mapInArrow is called; executors need none.

    :raises ConfigurationError: it is missing, or too old.
    """
    from pyspark.sql.pandas.utils import require_minimum_pandas_version

    try:
        require_minimum_pandas_version()
    except ImportError as error:
        words = re.sub(r"^\[[A-Z_]+\] ", "", str(error).splitlines()[0])
        raise ConfigurationError(
            f"The driver's Python lacks what pyspark needs for mapInArrow: {words}",
            expected="pandas in the driver's environment; executors need none",
            remedy="pip install 'pandas<3' there; 'eos intervals doctor' checks the rest.",
        ) from error


def refusal_within(text: str) -> ConfigurationError | None:
    """The error that Spark's text reports where an executor's Python cannot run a task; None if there is none."""
    found = _found(text)
    remedy = f"{SHIP_IT} 'eos intervals doctor --master …' looks at each one."
    return ConfigurationError(found, remedy=remedy) if found else None


def _found(text: str) -> str | None:
    if match := re.search(r"Python in worker has different version:? ([\d.]+) than that in driver:? ([\d.]+)", text):
        worker, driver = (version.rstrip(".") for version in match.groups())
        return f"An executor has Python {worker}, the driver {driver}: Spark takes no other minor version."
    if match := re.search(r'Cannot run program "([^"]+)"', text):
        return f"An executor has no program {match[1]}, which is to be its Python."
    if match := re.search(
        r"ImportError: (The Python of this Spark executor \(.{0,4096}\) lacks the module '[\w.]+'\.)", text
    ):
        return match[1]
    if match := re.search(r"ModuleNotFoundError: No module named '([\w.]+)'", text):
        return f"An executor's Python lacks the module {match[1]!r}."
    return None
