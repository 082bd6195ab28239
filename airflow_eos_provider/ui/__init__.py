"""The page "Exactly once" in Airflow's UI. It shows what ``eos … --json`` prints to users who may read connections."""
