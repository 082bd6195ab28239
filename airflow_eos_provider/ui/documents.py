"""Documents without secrets, cut into pages."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any

from fastapi import Depends, Query

from airflow_eos_provider.redaction import HIDDEN, is_secret_itself, redact

#: A longer list is cut.
MOST_ITEMS = 100_000

#: Names of moments and durations.
_TIMES = re.compile(r"(.*_)?(at|ms|seconds)")

#: An item of a list, as JSON.
Item = Mapping[str, Any]

#: The parameters of a request -> which items it wants.
Filters = Callable[[Mapping[str, str]], Callable[[Item], bool]]


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
    """The requested part of a list."""

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
    :param head: what applies to all of them: the other fields of the document.
    """

    items: Sequence[Item]
    texts: Sequence[str]
    total: int
    head: Mapping[str, Any]

    @classmethod
    def of(cls, items: Iterable[Item], head: Mapping[str, Any] = MappingProxyType({})) -> Table:
        """Remove the secrets of a list and its head."""
        kept, total, known = list[Item](), 0, dict[str, str]()
        for total, item in enumerate(items, 1):
            if total <= MOST_ITEMS:
                kept.append(_redacted(item, known))
        texts = ["\n".join(_leaves(_searched(item))).lower() for item in kept]
        return cls(kept, texts, total, redacted(head))

    def itself(self) -> Table:
        """A snapshot that is a list."""
        return self

    def page(self, paging: Paging, keep: Callable[[Item], bool] | None = None) -> dict[str, Any]:
        """One page of the items that match the search, as JSON."""
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
            **self.head,
            "items": found[first : first + paging.page_size],
            "total": self.total,
            "found": len(found),
            "page": paging.page,
            "page_size": paging.page_size,
        }


def keep_where(**wanted: str) -> Callable[[Item], bool]:
    """A filter by values. An empty value and ``false`` match everything, ``true`` matches true."""
    asked = {name: value for name, value in wanted.items() if value not in ("", "false")}
    return lambda item: all(
        value == str(item.get(name)) or (item.get(name) is True and value == "true") for name, value in asked.items()
    )


def filter_by(*names: str, **fields: str) -> Filters:
    """The filters of a route: parameters that name a field of the items, and others by the field that they mean."""
    asked = {**dict(zip(names, names, strict=True)), **fields}
    return lambda query: keep_where(**{field: query.get(name, "") for name, field in asked.items()})


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
