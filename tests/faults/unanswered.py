"""A commit that is answered with an error that says nothing, before or after it took effect.

No broker gives that answer when asked to: it comes where a commit meets an init of the same id.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from kafka.errors import UnknownError
from kafka.protocol.producer import EndTxnRequest

from airflow_eos_provider.kafka.write.producer import TransactionalProducer


def leave_commit_unanswered(
    producer: TransactionalProducer, takes_effect: bool, then: Callable[[], object] = lambda: None
) -> None:
    """The producer's next commit is answered so.

    :param then: called before the answer.
    """
    answer, left = producer._wire.answer, [True]

    async def answered(request: Any, node_id: int, deadline: float) -> Any:
        if not isinstance(request, EndTxnRequest) or not left:
            return await answer(request, node_id, deadline)
        left.clear()
        if takes_effect:
            assert not (await answer(request, node_id, deadline)).error_code
        then()
        return SimpleNamespace(error_code=UnknownError.errno)

    producer._wire.answer = answered  # type: ignore[method-assign]
