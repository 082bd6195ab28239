"""What is used of other libraries without their promise: a version without it is named here, not in production.

Upper bounds in ``pyproject.toml`` keep such a version out; whoever raises one runs these first. Spark's are in
``tests/integration/test_spark_inputs.py``, since they want a session.
"""

from __future__ import annotations

import importlib
import inspect

import pytest

#: Module, object in it, and where it is used.
NAMES = [
    # kafka-python: every message of ours goes through its connections.
    ("kafka.net.manager", "KafkaConnectionManager.get_connection", "kafka/wire.py"),
    ("kafka.net.connection", "KafkaConnection.init_future", "kafka/wire.py"),
    ("kafka.net.manager", "KafkaConnectionManager._build_transport", "kafka/wire.py"),
    ("kafka.net.manager", "KafkaConnectionManager.bootstrap_async", "kafka/wire.py"),
    ("kafka.net.manager", "KafkaConnectionManager.bootstrapped", "kafka/wire.py"),
    ("kafka.net.manager", "KafkaConnectionManager.least_loaded_node", "kafka/wire.py"),
    ("kafka.net.manager", "KafkaConnectionManager.wait_for", "kafka/wire.py"),
    ("kafka.net.selector", "NetworkSelector.call_soon_threadsafe", "kafka/wire.py"),
    ("kafka.net.selector", "NetworkSelector.call_soon_with_future", "kafka/wire.py"),
    ("kafka.net.selector", "NetworkSelector.wakeup", "kafka/wire.py"),
    ("kafka.cluster", "ClusterMetadata.leader_for_partition", "kafka/wire.py"),
    ("kafka.cluster", "ClusterMetadata.partitions_for_topic", "kafka/wire.py"),
    ("kafka.cluster", "ClusterMetadata.refresh_metadata", "kafka/wire.py"),
    ("kafka.protocol.producer", "AddPartitionsToTxnRequest", "kafka/write/sender.py"),
    ("kafka.protocol.producer", "ProduceRequest", "kafka/write/sender.py"),
    ("kafka.net.sasl.oauth", "AbstractTokenProvider", "kafka/settings/kafka_python_settings.py"),
    ("kafka.protocol.metadata", "CoordinatorType.TRANSACTION", "kafka/wire.py"),
    ("kafka.protocol.metadata", "FindCoordinatorRequest", "kafka/wire.py"),
    ("kafka.protocol.producer", "InitProducerIdRequest", "kafka/admin/bulk_fencing.py"),
    ("kafka.protocol.producer", "WriteTxnMarkersRequest", "kafka/admin/open_transactions.py"),
    ("kafka.protocol.admin", "DescribeAclsRequest", "kafka/admin/acls.py"),
    ("kafka.protocol.producer", "EndTxnRequest", "kafka/admin/id_rights.py"),
    ("kafka.protocol.consumer", "HeartbeatRequest", "kafka/admin/id_rights.py"),
    ("kafka.protocol.admin.transactions", "DescribeProducersRequest", "kafka/admin/open_transactions.py"),
    ("kafka.protocol.admin.transactions", "DescribeTransactionsRequest", "kafka/admin/coordinators.py"),
    ("kafka.protocol.admin.transactions", "ListTransactionsRequest", "kafka/admin/transactions.py"),
    ("kafka.cluster", "ClusterMetadata.add_coordinator", "kafka/wire.py"),
    # asyncssh: what OpenSSH's configuration says is asked before a connection is made.
    ("asyncssh.config", "SSHClientConfig.load", "rollout/hosts/machine/ssh/ssh_options.py"),
    ("asyncssh.config", "ConfigParseError", "rollout/hosts/machine/ssh/ssh_options.py"),
    # Airflow: a question that is put again keeps its text, and a task that waits for an answer has no process.
    ("airflow.sdk.api.datamodels._generated", "HITLUser", "operators/approval.py"),
    ("airflow.sdk.execution_time.comms", "CreateHITLDetailPayload", "operators/approval.py"),
    ("airflow.sdk.execution_time.task_runner", "SUPERVISOR_COMMS", "operators/approval.py"),
    ("airflow.sdk.exceptions", "TaskAwaitingInput", "operators/approval.py"),
]


@pytest.mark.parametrize(("module", "name", "used_in"), NAMES, ids=[f"{module}:{name}" for module, name, _ in NAMES])
def test_an_internal_of_another_library_is_there(module: str, name: str, used_in: str) -> None:
    found: object = importlib.import_module(module)
    first, *rest = name.split(".")
    # A module of Airflow's may only announce a name that it sets when a task runs.
    if not rest and first in getattr(found, "__annotations__", {}):
        return
    for part in (first, *rest):
        assert hasattr(found, part), f"{module}:{name} is gone; {used_in} needs it"
        found = getattr(found, part)


def test_a_refusal_that_kafka_python_remembers_is_raised_at_its_next_attempt() -> None:
    from kafka.net.manager import KafkaConnectionManager

    assert "self._auth_failures" in inspect.getsource(KafkaConnectionManager.__init__)
    assert "self.maybe_raise_auth_failure(node_id)" in inspect.getsource(KafkaConnectionManager.get_connection)


def test_kafka_pythons_connections_keep_their_state_where_we_look() -> None:
    from kafka.cluster import ClusterMetadata
    from kafka.net.connection import KafkaConnection
    from kafka.net.manager import KafkaConnectionManager
    from kafka.net.selector import NetworkSelector
    from kafka.net.transport import KafkaTCPTransport

    for kind, attributes in {
        ClusterMetadata: ("_topics", "unauthorized_topics", "config"),
        KafkaConnectionManager: ("_conns", "cluster"),
        NetworkSelector: ("_io_thread", "_stop"),
    }.items():
        source = inspect.getsource(kind.__init__)
        assert not [name for name in attributes if f"self.{name}" not in source], f"kafka/wire.py needs them of {kind}"
    assert hasattr(KafkaTCPTransport, "_sock_recv")
    # What is paused was not sent: such a request is sent again as a new one.
    assert "Errors.NodeNotReadyError(f'Node paused" in inspect.getsource(KafkaConnection.send_request)
