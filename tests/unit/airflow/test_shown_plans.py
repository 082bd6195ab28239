"""A plan that is made anew before it is carried out, as a document between two tasks."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.operators.shown_plan import ShownDocument


@pytest.mark.parametrize("document", [None, {}, {"kind": "shown plan"}, "text", []])
def test_what_is_no_plan_is_refused(document: Any) -> None:
    with pytest.raises(ConfigurationError, match="does not have its hash"):
        ShownDocument.from_dict(document)


def test_a_plan_that_was_edited_is_refused() -> None:
    document = ShownDocument("End it?", ("one",), "a" * 64).to_dict()
    assert ShownDocument.from_dict(document).to_dict() == document
    for changed in ({"lines": ["other"]}, {"question": "Keep it?"}, {"plan_hash": "b" * 64}):
        with pytest.raises(ConfigurationError, match="does not have its hash"):
            ShownDocument.from_dict({**document, **changed})
