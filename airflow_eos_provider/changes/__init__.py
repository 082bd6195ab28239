"""Changes of a group, each declared once. The command line, Airflow and the documents derive their surfaces from it."""
