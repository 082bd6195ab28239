"""What is left of a change of offsets that Connect, or a broker, refuses. On real parts: test_offsets_change.py."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_eos_provider.errors import ConfigurationError, EosError, RestRefusedError
from airflow_eos_provider.offsets.verbs.apply import OffsetsChanger, _Act

PLAN: Any = SimpleNamespace(connector="c", created=None, look=SimpleNamespace(exactly_once=True))


class Change:
    """The steps that are over."""

    def __init__(self) -> None:
        self.done = list[str]()

    def is_done(self, step: str) -> bool:
        return step in self.done

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        yield
        self.done.append(name)


@pytest.mark.parametrize(
    ("refused", "error", "is_brought_back"),
    [
        ("_stop", RestRefusedError("403", status=403), False),
        ("_stop", ConfigurationError("the config topic may not be read any more"), True),
        ("_fence", ConfigurationError("the id may not be fenced"), True),
    ],
)
def test_the_connector_is_brought_back_if_it_may_have_been_stopped(
    monkeypatch: pytest.MonkeyPatch, refused: str, error: EosError, *, is_brought_back: bool
) -> None:
    def refuse(*_: object) -> None:
        raise error

    cluster: Any = SimpleNamespace(cluster=SimpleNamespace(group_id="g"))
    acting: Any = Change()
    act, brought_back = _Act(OffsetsChanger(cluster, "configs", "offsets"), PLAN, acting), list[Any]()
    for name in ("_stop", "_require_untouched"):
        monkeypatch.setattr(act, name, lambda: None)
    monkeypatch.setattr(act, "_bring_back", lambda *, watch: brought_back.append(watch))
    monkeypatch.setattr(act, refused, refuse)
    with pytest.raises(type(error)):
        act._stop_and_write()
    assert bool(brought_back) is is_brought_back
