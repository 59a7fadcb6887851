"""How values are compared and shown, written once: `dataclass` would make it anew for each, half of what one costs."""

from __future__ import annotations

from typing import Any, ClassVar


class Value:
    """For values that are loaded before a first answer, `@dataclass(frozen=True, slots=True, eq=False, repr=False)`.

    Equal to another of its class with equal fields; shown with all fields that may be.
    """

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Any]]

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__dataclass_fields__)

    def __hash__(self) -> int:
        return hash(tuple([getattr(self, name) for name in self.__dataclass_fields__]))

    def __repr__(self) -> str:
        shown = (name for name, field in self.__dataclass_fields__.items() if field.repr)
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"
