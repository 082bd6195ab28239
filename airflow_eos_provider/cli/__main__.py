"""``python -m airflow_eos_provider.cli`` is ``eos``."""

from __future__ import annotations

from airflow_eos_provider.cli import main

main()
