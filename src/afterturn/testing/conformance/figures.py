"""Whatever happens to entries, the figures that scoring needs stay exact."""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any, TypeAlias

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from afterturn.errors import Conflict, InvalidInput, NotFound
from afterturn.ports import Store, Unit
from afterturn.testing.conformance.scene import NOW, TENANT, matches
from afterturn.testing.drafts import admit, operation
from afterturn.text import terms
from afterturn.types import Filter, Kind, LaneQuery, Origin, Scope, Selector, Status, Verb, Verdict

_WORDS = ("bees", "honey", "wax", "蜂蜜", "мёд", "hive")
_BLANK = "nothing"
_VERBS = ("add", "doubt", "record", "update", "delete", "undo", "forget")
_spaces = count()

Action: TypeAlias = tuple[str, int, list[str], Origin]
_ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(_VERBS),
        st.integers(0, 30),
        st.lists(st.sampled_from(_WORDS), max_size=4),
        st.sampled_from([Origin.USER, Origin.WEB]),
    ),
    max_size=25,
)


class _History:
    """Plays actions on one space, choosing among the ids and operations it has seen."""

    def __init__(self, space: str) -> None:
        self.space = space
        self.ids = ["unknown1"]
        self.operations = ["unknown2"]

    def play(self, unit: Unit, action: Action) -> None:
        verb, pick, words, origin = action
        chosen = operation(Verb.ADD, space=self.space)
        entry_id = self.ids[pick % len(self.ids)]
        draft: dict[str, Any] = {"text": " ".join(words) or _BLANK, "origin": origin}
        match verb:
            case "add" | "doubt":
                verdict = Verdict.QUARANTINE if verb == "doubt" else Verdict.ALLOW
                self.ids.append(unit.memories.add(chosen, admit(**draft, verdict=verdict)).entry.id)
            case "record":
                self.ids.append(unit.records.add(chosen, [admit(**draft, kind=Kind.RECORD)])[0].id)
            case "update":
                unit.memories.update(chosen, entry_id, admit(**draft), expected_version=None)
            case "delete":
                unit.memories.delete(chosen, entry_id)
            case "undo":
                unit.operations.undo(chosen, target=self.operations[pick % len(self.operations)])
            case "forget":
                unit.operations.forget(TENANT, self.space, Selector(memory=entry_id), at=NOW)
        self.operations.append(chosen.id)


class TestFigures:
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=60)
    @given(actions=_ACTIONS, together=st.booleans())
    async def test_figures_equal_a_fresh_count(self, store: Store, actions: list[Action], *, together: bool) -> None:
        """L6: document frequencies are exact after any sequence of operations."""
        history = _History(f"user:{next(_spaces)}")
        if together:
            await store.write(partial(_play, history=history, actions=actions))
        else:
            for action in actions:
                await store.write(partial(_play, history=history, actions=[action]))
        await store.read(lambda unit: _compare(unit, Scope(TENANT, (history.space,))))


def _play(unit: Unit, history: _History, actions: Sequence[Action]) -> None:
    for action in actions:
        # Whatever is refused is refused before anything was changed, so the unit may go on.
        with suppress(Conflict, InvalidInput, NotFound):
            history.play(unit, action)


def _compare(unit: Unit, scope: Scope) -> None:
    active = unit.memories.page(scope, Filter(), limit=1000)
    assert {entry.status for entry in active} <= {Status.ACTIVE}
    analysed = {entry.ref: terms(entry.text) for entry in active}
    documents = Counter(term for found in analysed.values() for term in set(found))
    vocabulary = list(dict.fromkeys(terms(" ".join((*_WORDS, _BLANK)))))
    space = scope.spaces[0]
    assert unit.index.frequencies(scope, vocabulary) == ({space: dict(documents)} if documents else {})
    extent = unit.index.stats(scope).get(space)
    counted = (extent.documents, extent.terms_total) if extent else (0, 0)
    assert counted == (len(active), sum(map(len, analysed.values())))
    found = matches(unit, LaneQuery(scope, NOW), vocabulary, limit=1000)
    assert {match.entry.ref: sorted(match.terms) for match in found} == {
        ref: sorted(found) for ref, found in analysed.items() if set(found) & set(vocabulary)
    }
