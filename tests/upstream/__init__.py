"""Faults of Kafka, Connect, Airflow, Spark and the client libraries that we work around, each shown by its own script.

``python -m tests.upstream [NAME…]`` shows them on real parts, about a minute each, and so does ``test_upstream.py``, if
you name it. A script ends with an error where a newer version has fixed its fault: then
``docs/contributing/upstream.md`` and the workaround have outlived their reason.
"""
