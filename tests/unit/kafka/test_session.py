"""A session keeps what it has made: clients that work, and followers."""

from __future__ import annotations

import contextlib
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import kafka.errors
import pytest

from airflow_eos_provider.errors import ConfigurationError, EosError, UnreachableError
from airflow_eos_provider.kafka.admin.transactions import TransactionsClient
from airflow_eos_provider.kafka.borrowed_clients import Lent
from airflow_eos_provider.kafka.kafka_session import Session, session_of
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings

NOBODY = KafkaSettings.of("127.0.0.1:1")


class Client:
    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def clients() -> Lent[Client]:
    return Lent(Client, Client.close)


class TestLending:
    def test_a_client_is_lent_again(self, clients: Lent[Client]) -> None:
        with clients.lend() as first:
            pass
        with clients.lend() as second:
            assert second is first
        assert clients.made == 1

    def test_two_borrowers_at_once_get_a_client_each(self, clients: Lent[Client]) -> None:
        with clients.lend() as first, clients.lend() as second:
            assert first is not second
        with clients.lend(), clients.lend():
            assert clients.made == 2

    def test_one_whose_borrower_failed_is_closed_and_not_lent_again(self, clients: Lent[Client]) -> None:
        with pytest.raises(UnreachableError), clients.lend() as failed:
            raise UnreachableError("no broker")
        with clients.lend() as another:
            assert another is not failed
        assert (failed.closed, another.closed) == (True, False)

    def test_what_is_idle_can_be_closed_and_is_made_anew(self, clients: Lent[Client]) -> None:
        with clients.lend() as idle:
            pass
        clients.drop()
        with clients.lend() as another:
            pass
        with clients.lend() as again:
            assert again is another
        assert (idle.closed, another.closed) == (True, False)

    def test_a_client_that_cannot_be_closed_hides_no_error(self) -> None:
        def refuse(_: Client) -> None:
            raise RuntimeError("cannot be closed")

        with pytest.raises(UnreachableError), Lent(Client, refuse).lend():
            raise UnreachableError("no broker")

    def test_what_is_borrowed_while_all_is_closed_is_closed_when_it_comes_back(self, clients: Lent[Client]) -> None:
        with clients.lend() as borrowed, clients.lend() as idle:
            pass
        with clients.lend() as borrowed:
            clients.close()
            assert not borrowed.closed
        assert borrowed.closed
        assert idle.closed


class TestSession:
    def test_its_clients_are_kept(self) -> None:
        with Session(NOBODY) as session:
            with session.admin() as first, session.consumer(isolation_level="read_committed") as consumer:
                pass
            with session.admin() as second, session.consumer(isolation_level="read_committed") as again:
                assert (second, again) == (first, consumer)
            assert session.clients_made == 2

    def test_consumers_of_other_properties_are_others(self) -> None:
        with Session(NOBODY) as session:
            with session.consumer(isolation_level="read_committed") as committed:
                pass
            with session.consumer(isolation_level="read_uncommitted") as uncommitted:
                assert uncommitted is not committed

    def test_what_a_client_reported_between_two_questions_explains_neither(self) -> None:
        with Session(NOBODY) as session:
            with session.consumer() as consumer:
                consumer.client_errors.last = "the broker had gone to sleep"
            with session.consumer() as consumer:
                assert consumer.client_errors.last is None

    def test_a_topic_has_one_follower_of_a_kind(self) -> None:
        session = Session(NOBODY)
        make: Callable[[str], list[str]] = lambda topic: [topic]  # noqa: E731 - the very same kind is named twice
        assert session.follower(make, "t") is session.follower(make, "t")
        assert session.follower(make, "t") is not session.follower(make, "u")
        assert session.follower(list, "t") == ["t"]

    @pytest.mark.parametrize("end", [Session.close, lambda session: None])
    def test_its_clients_are_closed_with_it_at_the_latest_when_nobody_has_it_any_more(self, end: Any) -> None:
        session = Session(NOBODY)
        with session.lent("client", Client, Client.close).lend() as client:
            pass
        end(session)
        del session
        gc.collect()
        assert client.closed

    @pytest.mark.parametrize("ask", [Session.admin, Session.consumer])
    def test_what_makes_its_clients_does_not_keep_it(self, ask: Callable[[Session], Any]) -> None:
        """A session that is kept by its own clients is never collected, and neither are their threads."""
        session = Session(NOBODY)
        with contextlib.suppress(EosError), ask(session):
            pass
        kept = weakref.ref(session)
        del session
        gc.collect()
        assert kept() is None

    def test_whoever_comes_after_its_end_is_served_and_nothing_is_kept(self) -> None:
        session = Session(NOBODY)
        session.close()
        with session.lent("client", Client, Client.close).lend() as client:
            assert not client.closed
        assert client.closed

    def test_many_threads_that_ask_at_once_have_one_shelf(self) -> None:
        session, together = Session(NOBODY), threading.Barrier(8, timeout=20.0)
        shelves: list[object] = []

        def ask() -> None:
            together.wait()
            shelves.append(session.lent("client", Client, Client.close))

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20.0)
        assert shelves == [shelves[0]] * 8

    def test_a_session_is_used_as_it_is_and_settings_get_one_for_one_question(self) -> None:
        with Session(NOBODY) as session, session_of(session) as same:
            assert same is session
        with session_of(NOBODY) as made, made.lent("client", Client, Client.close).lend() as client:
            assert made.settings is NOBODY
        assert client.closed


def test_a_certificate_that_was_refused_may_be_a_better_one_when_it_is_asked_again() -> None:
    """kafka-python remembers a refusal for good. Set here: a broker would need another certificate in between."""
    expired = kafka.errors.KafkaConnectionError("[SSL: CERTIFICATE_VERIFY_FAILED] certificate has expired")
    with TransactionsClient(NOBODY, timeout_seconds=0.5) as client:
        client.wire._manager.last_failure = client.wire._manager._auth_failures["bootstrap-0"] = expired
        with pytest.raises(ConfigurationError, match="certificate has expired"):
            client.list()
        with pytest.raises(UnreachableError):
            client.list()
