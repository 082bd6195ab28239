"""Documents without secrets, cut into pages."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Query

from airflow_eos_provider.redaction import HIDDEN, is_secret_itself, redact

#: A longer list is cut.
MOST_ITEMS = 100_000

#: A connector may have any name.
ConnectorName = Annotated[str, Query(max_length=4_000)]

#: Names of moments and durations.
_TIMES = re.compile(r"(.*_)?(at|ms|seconds)")

#: An item of a list, as JSON.
Item = Mapping[str, Any]


def redacted(document: Any) -> Any:
    """The document without what is secret in it, leaf by leaf: by the names of keys, by value and by shape."""
    return _redacted(document, {})


def _redacted(value: Any, known: dict[str, str]) -> Any:
    if isinstance(value, str):
        found = known.get(value)
        if found is None:
            found = known[value] = redact(value)
        return found
    if isinstance(value, Mapping):
        return {_redacted(str(key), known): _under(str(key), each, known) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_redacted(each, known) for each in value]
    return value


def _under(key: str, value: Any, known: dict[str, str]) -> Any:
    is_hidden = is_secret_itself(key) and value not in (None, "", True, False)
    return HIDDEN if is_hidden else _redacted(value, known)


@dataclass(frozen=True, slots=True)
class Paging:
    """The requested part of a list.

    :param search: words that an item must contain.
    :param page: from 1.
    :param page_size: items of a page.
    """

    search: str = ""
    page: int = 1
    page_size: int = 50


def _paging(
    search: Annotated[str, Query(max_length=200)] = "",
    page: Annotated[int, Query(ge=1, le=MOST_ITEMS)] = 1,
    page_size: Annotated[int, Query(ge=1, le=500)] = 50,
) -> Paging:
    return Paging(search, page, page_size)


#: The parameters of a route that answers with a page.
PagingDep = Annotated[Paging, Depends(_paging)]


@dataclass(frozen=True, slots=True)
class Table:
    """A list, shown page by page.

    :param items: without secrets.
    :param texts: the searchable text of each item, in lower case.
    :param total: number of items before the list was cut.
    """

    items: Sequence[Item]
    texts: Sequence[str]
    total: int

    @classmethod
    def of(cls, items: Iterable[Item]) -> Table:
        """Remove the secrets of a list."""
        kept, total, known = list[Item](), 0, dict[str, str]()
        for total, item in enumerate(items, 1):
            if total <= MOST_ITEMS:
                kept.append(_redacted(item, known))
        return cls(kept, ["\n".join(_leaves(_searched(item))).lower() for item in kept], total)

    def page(self, paging: Paging, keep: Callable[[Item], bool] | None = None) -> dict[str, Any]:
        """One page of the items that match the search, as JSON.

        :param keep: filters the items; None keeps all.
        """
        words = paging.search.lower().split()
        found: Sequence[Item] = self.items
        if words:
            found = [
                item for item, text in zip(self.items, self.texts, strict=True) if all(word in text for word in words)
            ]
        if keep is not None:
            found = [item for item in found if keep(item)]
        first = (paging.page - 1) * paging.page_size
        return {
            "items": found[first : first + paging.page_size],
            "total": self.total,
            "found": len(found),
            "page": paging.page,
            "page_size": paging.page_size,
        }


@dataclass(frozen=True, slots=True)
class Listing:
    """Rows and what applies to all of them, without secrets.

    :param rows: one per item.
    :param head: the other fields of the document.
    """

    rows: Table
    head: Mapping[str, Any]

    @classmethod
    def of(cls, rows: Iterable[Item], head: Mapping[str, Any]) -> Listing:
        """Remove the secrets of rows and head."""
        return cls(Table.of(rows), redacted(head))

    def page(self, paging: Paging, keep: Callable[[Item], bool] | None = None) -> dict[str, Any]:
        """One page, as :meth:`Table.page` takes and gives it, with the head."""
        return {**self.head, **self.rows.page(paging, keep)}


def keep_where(**wanted: str) -> Callable[[Item], bool]:
    """A filter by values; empty values match everything, ``true`` matches true."""
    asked = {name: value for name, value in wanted.items() if value}
    return lambda item: all(
        value == str(item.get(name)) or (item.get(name) is True and value == "true") for name, value in asked.items()
    )


def to_json(document: Any) -> bytes:
    """The document as compact JSON."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"), default=str).encode()


def _searched(item: Item) -> Item:
    """Without times and durations: their digits would match short searches by chance."""
    return {
        name: value for name, value in item.items() if not (isinstance(value, int | float) and _TIMES.fullmatch(name))
    }


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for each in value.values():
            yield from _leaves(each)
    elif isinstance(value, list):
        for each in value:
            yield from _leaves(each)
    elif value is not None:
        yield str(value)
