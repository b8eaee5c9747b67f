"""Tables of a TOML file, taken apart so that every error says where and what."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from kayos.errors import InvalidArgument

Value = TypeVar("Value")


@contextmanager
def placed(where: str) -> Iterator[None]:
    """Errors inside say where."""
    try:
        yield
    except InvalidArgument as error:
        raise InvalidArgument(f"{where}: {error.message}") from None


class Section:
    """A table whose keys are taken one by one, each of its type; at the `end` none may be left."""

    def __init__(self, table: dict[str, Any]) -> None:
        self._table = table
        self._taken: set[str] = set()

    def number(self, name: str, default: int | None = None) -> int:
        return self._take(name, int, "a whole number", default)

    def text(self, name: str, default: str | None = None) -> str:
        return self._take(name, str, "text", default)

    def table(self, name: str, default: dict[str, Any] | None = None) -> dict[str, Any]:
        return self._take(name, dict, "a table", default)

    def tables(self, name: str, default: list[dict[str, Any]] | None = None) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._take(name, list, "a list of tables", default)
        if not all(type(entry) is dict for entry in found):
            raise InvalidArgument(f"{name} is {found!r}: expected a list of tables")
        return found

    def end(self) -> None:
        unknown = sorted(set(self._table) - self._taken)
        if unknown:
            raise InvalidArgument(f"{unknown[0]!r} is unknown: known are {', '.join(sorted(self._taken))}")

    def _take(self, name: str, wanted: type[Value], word: str, default: Value | None) -> Value:
        self._taken.add(name)
        value = self._table.get(name, default)
        if value is None:
            raise InvalidArgument(f"{name} is missing: give {word}")
        if not isinstance(value, wanted) or type(value) is bool:
            raise InvalidArgument(f"{name} is {value!r}: expected {word}")
        return value
