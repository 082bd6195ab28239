"""Connect's own change of offsets fails with a NullPointerException for a connector that has never run.

Each stop writes an empty task set; behind the second one the worker asks for the generation of task configs that are
not there.
"""

from __future__ import annotations

import httpx

from airflow_eos_provider.connect.mode import Mode
from tests.upstream.shown import FILE_SOURCE, SECONDS, StartLab, rest_of
from tests.waiting import until

WANTED = {"offsets": [{"partition": {"filename": "none"}, "offset": {"position": 0}}]}


def show(start: StartLab) -> str:
    lab = start(workers=1, mode=Mode.ENABLED)
    address = f"{lab.connect_urls[0]}/connectors/never/offsets"
    answers = list[httpx.Response]()

    def is_answered() -> bool:
        answers.append(httpx.patch(address, json=WANTED, timeout=60, trust_env=False))
        return answers[-1].status_code != httpx.codes.CONFLICT  # it is rebalancing

    with rest_of(lab) as rest:
        rest.create("never", {"connector.class": FILE_SOURCE, "topic": "never", "file": "none"}, "STOPPED")
        until(lambda: "never" in rest.statuses(), "the connector", seconds=SECONDS)
        codes = []
        for _ in range(2):
            rest.stop("never")
            until(is_answered, "the group to be stable", seconds=SECONDS)
            codes.append(answers[-1].status_code)
    assert codes == [200, 500], answers[-1].text
    assert "taskConfigGeneration" in answers[-1].text, answers[-1].text
    return f"the second PATCH answered 500: {answers[-1].json()['message'][:120]}"
