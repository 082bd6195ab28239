"""The buttons that Airflow shows for a task (*extra links*).

Airflow asks for them in the task's own process at its end and keeps their answers. :func:`show` keeps a
link earlier, so that its button appears while the task runs. A link that cannot be made is left out; it fails nothing.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperatorLink

from airflow_eos_provider.links.page import cluster_url, shown_url

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, Context
    from airflow.sdk.types import TaskInstanceKey

logger = logging.getLogger(__name__)

#: Where an operator keeps the addresses that it has shown.
_SHOWN = "_eos_shown_links"


class _ShownLink(BaseOperatorLink):
    """A link whose address the operator finds out while it runs."""

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        return str(vars(operator).get(_SHOWN, {}).get(self.xcom_key, ""))


class ClusterPageLink(BaseOperatorLink):
    """The cluster on the page "Exactly once"."""

    name = "Cluster"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        return cluster_url(str(getattr(operator, "conn_id", "")))


class RollPageLink(_ShownLink):
    """The roll on the page "Exactly once"; until its id is known, the cluster's history."""

    name = "Roll"


class ConnectRestLink(_ShownLink):
    """The REST API of the cluster's first worker."""

    name = "Connect REST"


class IntervalPageLink(_ShownLink):
    """The interval run on the page "Exactly once"."""

    name = "Interval"


class SparkPageLink(_ShownLink):
    """Spark's own page of the driver; it ends with the driver."""

    name = "Spark UI"


def show(operator: Any, context: Context, link: BaseOperatorLink, url: str) -> None:
    """Show a link from now on."""
    if not url:
        return
    vars(operator).setdefault(_SHOWN, {})[link.xcom_key] = url
    try:
        context["ti"].xcom_push(key=link.xcom_key, value=url)
    except Exception as error:  # whatever it is, the work is not about links
        logger.debug("The link %s was not kept: %s", link.name, type(error).__name__)


def show_rest(operator: Any, context: Context, cluster: Any) -> None:
    """Show the REST API of a cluster's first worker."""
    workers = getattr(cluster, "workers", ())
    if workers:
        show(operator, context, ConnectRestLink(), shown_url(workers[0].url))
