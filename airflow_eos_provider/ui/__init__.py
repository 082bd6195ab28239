"""The page "Exactly once" in Airflow's UI: what ``eos`` prints, from the same core, for who may see connections."""
