"""Errors survive the pickling that Airflow does with a task's exception."""

from __future__ import annotations

import pickle

from airflow_eos_provider.errors import ConnectRestError, RefusedError


def test_an_error_keeps_its_three_parts() -> None:
    error = pickle.loads(pickle.dumps(RefusedError("found", expected="expected", remedy="remedy")))
    assert (error.found, error.expected, error.remedy) == ("found", "expected", "remedy")
    assert str(error) == "found\nExpected: expected\nWhat to do: remedy"


def test_an_answer_of_connect_keeps_its_status() -> None:
    assert pickle.loads(pickle.dumps(ConnectRestError("busy", status=409))).status == 409
