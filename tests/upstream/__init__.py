"""Faults of Kafka, Connect and the client libraries that this package works around, each shown by a script of its own.

``python -m tests.upstream [NAME…]`` shows them on real parts, about a minute each; ``EOS_UPSTREAM=1`` lets
``test_upstream.py`` do the same. A script ends with an error where a newer version has mended its fault: then
``docs/found-upstream.md`` and the workaround have outlived their reason.
"""
