"""The embedded lab: real Kafka, Connect workers, PostgreSQL and Airflow on one machine."""
