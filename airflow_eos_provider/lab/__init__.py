"""The embedded lab: real Kafka, real Connect workers, real Airflow on one machine, and the demo that uses them."""
