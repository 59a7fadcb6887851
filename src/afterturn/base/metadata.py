"""The metadata of what was read from a store: shared by whoever reads it, so nobody may change it."""

from typing import Any, NoReturn


class ReadMetadata(dict[str, Any]):
    """A dictionary in all but that. A copy, also a deep or a pickled one, is a plain dictionary."""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError(
            "What was read of a memory can not be changed. Change dict(entry.metadata) and update the memory."
        )

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[dict[str, Any]]]:
        return dict, (dict(self),)
