"""Addresses of the views of the page "Exactly once" (``ui``), and other addresses that may be shown as links."""

from __future__ import annotations

from urllib.parse import quote, urlsplit, urlunsplit

from airflow.sdk.configuration import conf

#: Where Airflow shows the page: ``/plugin/`` and the route of its view (``ui/plugin.py``).
PAGE_PATH = "/plugin/exactly-once"


def cluster_url(conn_id: str) -> str:
    """The cluster of a connection."""
    return _view("clusters", conn_id)


def history_url(conn_id: str) -> str:
    """What was done to the cluster of a connection."""
    return _view("clusters", conn_id, "history")


def roll_url(conn_id: str, rollout_id: str) -> str:
    """One roll."""
    return _view("clusters", conn_id, "rolls", rollout_id)


def interval_url(conn_id: str, group_id: str, pipeline: str, run: str) -> str:
    """One interval run, by its name."""
    return _view("intervals", conn_id, group_id, pipeline, run)


def _view(*parts: str) -> str:
    """Each part is encoded, as names of others may hold anything."""
    base = str(conf.get("api", "base_url", fallback="") or "").rstrip("/")
    path = "".join("/" + quote(part, safe="") for part in parts)
    return f"{base}{PAGE_PATH}#{path}"


def shown_url(url: object) -> str:
    """An address of another system as a link: of HTTP, without a login; empty if it is none."""
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        host = parts.hostname
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return ""
    if parts.scheme not in ("http", "https") or not host:
        return ""
    host = f"[{host}]" if ":" in host else host
    return urlunsplit((parts.scheme, f"{host}{port}", parts.path, "", ""))
