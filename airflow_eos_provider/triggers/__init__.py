"""Airflow triggers, which only read."""
