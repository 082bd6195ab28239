"""What Airflow reads about this package from its ``apache_airflow_provider`` entry point.

The dictionary is validated by Airflow's ``provider_info.schema.json``; the connection's form by the stricter
``provider.yaml.schema.json``. The form of the connection lives here (``conn-fields``, ``ui-field-behaviour``) and not
in the hook, because Airflow 3.2 and later draw it without importing the hook.
"""

from __future__ import annotations

from typing import Any

_DOCUMENTATION = "https://kafka.apache.org/documentation/#connect_exactlyoncesource"
_INTEGRATION = "Kafka Connect exactly-once"


_MODULES = {
    "hooks": ("kafka_connect", "pipeline"),
    "operators": (
        "approval",
        "audit",
        "change_base",
        "changes",
        "connect_preflight",
        "interval_run",
        "offsets_backup",
        "rolling_upgrade",
    ),
    "sensors": ("connect_drift", "connect_transactions", "interval_complete"),
    "triggers": ("approval", "connect_drift", "connect_transactions", "gate", "interval_complete"),
}


def get_provider_info() -> dict[str, Any]:
    """The description of this provider."""
    return {
        "package-name": "airflow-eos-provider",
        "name": "Kafka Connect exactly-once",
        "description": "Exactly-once source support (KIP-618) for Kafka Connect, operated from Airflow; and Spark "
        "batches that reach Kafka exactly once, interval by interval.",
        "integrations": [
            {"integration-name": _INTEGRATION, "external-doc-url": _DOCUMENTATION, "tags": ["apache", "kafka"]}
        ],
        **{kind: [_modules(kind, names)] for kind, names in _MODULES.items()},
        "task-decorators": [
            {"name": "interval_run", "class-name": "airflow_eos_provider.decorators.interval_run.interval_run_task"}
        ],
        "notifications": [
            "airflow_eos_provider.notifications.drift.ConnectDriftNotifier",
            "airflow_eos_provider.notifications.interval_late.IntervalLateNotifier",
            "airflow_eos_provider.notifications.roll.ConnectRollNotifier",
        ],
        "extra-links": [
            f"airflow_eos_provider.links.operator_links.{name}"
            for name in ("ClusterPageLink", "RollPageLink", "ConnectRestLink", "IntervalPageLink", "SparkPageLink")
        ],
        "asset-uris": [
            {
                "schemes": ["x-eos"],
                "handler": "airflow_eos_provider.assets.intervals.sanitize_uri",
                "factory": "airflow_eos_provider.assets.intervals.create_asset",
                "to_openlineage_converter": "airflow_eos_provider.assets.intervals.convert_asset_to_openlineage",
            }
        ],
        # Airflow reads this where it loads all providers at once; else the entry point airflow.plugins.
        "plugins": [
            {"name": "exactly_once", "plugin-class": "airflow_eos_provider.ui.plugin.ExactlyOncePlugin"},
        ],
        "connection-types": [_kafka_connect_connection()],
        "config": _config(),
    }


def _modules(kind: str, names: tuple[str, ...]) -> dict[str, Any]:
    modules = [f"airflow_eos_provider.{kind}.{name}" for name in names]
    return {"integration-name": _INTEGRATION, "python-modules": modules}


def _config() -> dict[str, Any]:
    return {
        "eos": {
            "description": "Exactly-once operations of Kafka Connect.",
            "options": {
                "allow_host_commands_in_connection": {
                    "description": "Whether a connection of type kafka_connect may name commands to run, files to "
                    "write and processes to stop on the machine of an Airflow worker, or on machines that it logs in "
                    "to (machine, service, config, "
                    "start and so on of its workers). "
                    "Anyone who may edit connections can then run any command as the Airflow worker. Otherwise the "
                    "connection names a cluster_file.",
                    "version_added": "0.1.0",
                    "type": "boolean",
                    "example": "True",
                    "default": "False",
                },
                "connection_files_folders": {
                    "description": "Folders on the Airflow workers and API servers, separated by commas. A connection "
                    "of type kafka_connect may name files in them: cluster_file, and files with a login "
                    "(rest.client_certificate, rest.client_key, ssl.key.location and so on). Every other file is "
                    "refused: otherwise anyone who may edit connections could read any file, or send it to brokers.",
                    "version_added": "0.1.0",
                    "type": "string",
                    "example": "/etc/eos,/opt/airflow/clusters",
                    "default": "/etc/eos",
                },
            },
        }
    }


def _kafka_connect_connection() -> dict[str, Any]:
    return {
        "connection-type": "kafka_connect",
        "hook-class-name": "airflow_eos_provider.hooks.kafka_connect.KafkaConnectHook",
        "hook-name": "Kafka Connect",
        "ui-field-behaviour": {
            "relabeling": {
                "host": "REST URL",
                "login": "REST user",
                "password": "REST password",
                "port": "REST port",
                "schema": "REST scheme",
            },
            "placeholders": {
                "host": "http://connect-1:8083",
                "login": "only if the workers' REST API wants basic authentication",
                "password": "of the REST user",
                "port": "8083, if it is not in the URL",
                "schema": "http or https, if it is not in the URL",
            },
        },
        "conn-fields": {
            "bootstrap_servers": _field(
                "Bootstrap servers",
                "The brokers of the workers' own Kafka cluster, such as broker1:9092,broker2:9092. Needed unless there "
                "is a cluster file or a Kafka connection.",
            ),
            "cluster_file": _field(
                "Cluster file",
                "A file on the Airflow workers that describes the cluster, such as /etc/eos/orders.yaml, in a folder "
                "of [eos] connection_files_folders. Bootstrap servers, client, REST settings and other Kafka clusters "
                "may be given with it; Group and Workers may not.",
            ),
            "group_id": _field(
                "Group",
                "The workers' group.id, as their properties files have it, such as connect-cluster. Needed unless "
                "there is a cluster file.",
            ),
            "kafka_conn_id": _field(
                "Kafka connection",
                "The id of a connection of type kafka that knows the brokers and the login, such as kafka_default; "
                "instead of Bootstrap servers and Client properties.",
            ),
            "client": _field(
                "Client properties",
                'How to reach the brokers: librdkafka properties, such as {"security.protocol": "SASL_SSL"}; empty for '
                "brokers without TLS and login.",
                type_=["object", "null"],
            ),
            "client_secrets": _field(
                "Secret client properties",
                'Properties that are secret, such as {"sasl.password": "…"} or ssl.key.pem; never shown again.',
                type_=["object", "null"],
            ),
            "rest": _field(
                "REST settings",
                "How to reach the workers' REST API where it has TLS or wants a token: token, ca, client_certificate, "
                'verify, such as {"ca": "/etc/ssl/connect.pem"}.',
                type_=["object", "null"],
            ),
            "defaults": _field(
                "Defaults of all workers",
                "machine, service, config and log of every worker that does not say them itself, such as "
                '{"log": {"journal": true}}; as for workers, [eos] allow_host_commands_in_connection has to be on.',
                type_=["object", "null"],
            ),
            "workers": {
                "label": "Workers",
                "description": 'One entry per worker, such as [{"url": "http://connect-1:8083"}]; empty if REST URL is '
                "the only one. Its machine (with "
                "conn_id, a connection of type ssh), its service and its files belong in the cluster file, unless "
                "[eos] allow_host_commands_in_connection is on.",
                "schema": {"type": ["array", "null"], "items": {"type": "object"}},
            },
            "other_kafka": {
                "label": "Other Kafka clusters",
                "description": "Those in which source connectors have their clients, if their brokers want a login or "
                'other TLS: one entry each, such as [{"kafka_conn_id": "kafka_of_target"}], or bootstrap_servers, '
                "client and client_secrets.",
                "schema": {"type": ["array", "null"], "items": {"type": "object"}},
            },
        },
    }


def _field(label: str, description: str, *, type_: list[str] | None = None) -> dict[str, Any]:
    return {"label": label, "description": description, "schema": {"type": type_ or ["string", "null"]}}
