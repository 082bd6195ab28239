"""What ``eos fencing list`` prints of a look."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_eos_provider.changes.fencing.change import FencingRequest, fencing_plan, look_document, look_lines
from airflow_eos_provider.changes.fencing.fencing_facts import FenceLook
from airflow_eos_provider.changes.fencing.fencing_plan import decide
from tests.unit.changes.fencing.test_fence_plan import connector, group

IDS = 12


def look(*, enabled: bool = True) -> FenceLook:
    """A connector of twelve tasks, of which the sixth holds a transaction open and has failed."""
    seen = connector(IDS, IDS, states="RRRRRFRRRRRR", held=(5,), config={"password": "c4n4ry"})
    return replace(group(seen, enabled={"w:1": enabled}), at=43.0)


@pytest.mark.parametrize("whole", [False, True])
def test_the_id_that_is_held_is_shown_and_on_request_every_other(whole: bool) -> None:
    seen = look()
    printed = "\n".join(look_lines(seen, decide(seen), whole=whole))
    assert "no round is pending, but id 5 has a transaction open" in printed
    assert ("g-c-4 " in printed) is whole
    for words in ("g-c-5", "7/4", "held open for 42 of 60 s, in t-0", "fence id 5", "restart task 5"):
        assert words in printed


def test_workers_below_enabled_have_nothing_to_fence_and_that_is_said() -> None:
    seen = look(enabled=False)
    assert list(look_lines(seen, decide(seen), whole=False)) == [
        "No worker runs exactly-once source tasks, so there are no transactional ids."
    ]
    assert fencing_plan(seen, decide(seen), FencingRequest()).nothing.startswith("No worker runs exactly-once")


def test_the_document_has_every_id_and_no_configuration() -> None:
    seen = look()
    document = look_document(seen, decide(seen))
    (one,) = document["connectors"]
    assert [each["task"] for each in one["ids"] if each["held"]] == [5]
    assert len(one["ids"]) == IDS
    assert (one["fence"], one["restart"], one["running"]) == ([5], [5], [])
    assert "c4n4ry" not in str(document)
