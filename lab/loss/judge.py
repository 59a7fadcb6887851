"""Checks a store after a crash: its content, and whether its tables agree."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from afterturn.errors import StoreCorrupt
from afterturn.stores.sql.session import Session, TextIndex
from afterturn.stores.sqlite.session import FtsText
from afterturn.types import Status
from lab.loss.plan import LEARNED_BY_A_REVIEW, LEARNER, ExpectedEntry, State, Step, StepKind, after
from lab.tables import Store, is_on_server, open_tables, read_rows

_CONTRADICTIONS = {
    "active without index entry": (
        "SELECT key FROM entry WHERE status = 'active' EXCEPT SELECT {key} FROM entry_terms AS t"
    ),
    "index entry without active entry": (
        "SELECT {key} FROM entry_terms AS t EXCEPT SELECT key FROM entry WHERE status = 'active'"
    ),
    "entry without change row": "SELECT key FROM entry WHERE key NOT IN (SELECT entry_key FROM change)",
    "entry that no operation made": (
        "SELECT key FROM entry WHERE key NOT IN (SELECT entry_key FROM step WHERE before IS NULL)"
    ),
    "step without entry": "SELECT entry_key FROM step WHERE entry_key NOT IN (SELECT key FROM entry)",
    "step without operation": "SELECT operation_seq FROM step WHERE operation_seq NOT IN (SELECT seq FROM operation)",
    "operation without step": "SELECT id FROM operation WHERE seq NOT IN (SELECT operation_seq FROM step)",
    "newest change is not the space's": (
        "SELECT name FROM space WHERE seq <> coalesce((SELECT max(seq) FROM change WHERE space_key = space.key), 0)"
    ),
    "count of documents": (
        "SELECT name FROM space WHERE documents <> "
        "(SELECT count(*) FROM entry WHERE space_key = space.key AND status = 'active')"
    ),
    "two active versions": "SELECT id FROM entry WHERE status = 'active' GROUP BY space_key, id HAVING count(*) > 1",
    "record of a turn that is not recorded": (
        "SELECT id FROM entry WHERE kind = 'record' AND turn NOT IN (SELECT id FROM turn WHERE recorded_at IS NOT NULL)"
    ),
    "recorded turn without its records": (
        "SELECT id FROM turn WHERE recorded_at IS NOT NULL AND "
        "(SELECT count(*) FROM entry WHERE entry.turn = turn.id AND kind = 'record') <> 2"
    ),
    "count of recorded turns": (
        "SELECT id FROM conversation WHERE turns <> (SELECT count(*) FROM turn "
        "WHERE conversation_key = conversation.key AND recorded_at IS NOT NULL)"
    ),
    "message recorded twice": (
        "SELECT turn FROM entry WHERE kind = 'record' AND turn IS NOT NULL "
        "GROUP BY space_key, conversation, turn, position HAVING count(*) > 1"
    ),
    "statement active twice": (
        "SELECT min(id) FROM entry WHERE kind = 'statement' AND status = 'active' "
        "GROUP BY space_key, target, coalesce(agent, ''), coalesce(project, ''), content_hash HAVING count(*) > 1"
    ),
    "changes of a review that has not saved": (
        "SELECT r.id FROM review AS r JOIN operation AS o ON o.grp = r.id WHERE r.state <> 'saved'"
    ),
    "block's reference without block": (
        "SELECT ref FROM block_ref AS r "
        "WHERE NOT EXISTS (SELECT 1 FROM block WHERE conversation_key = r.conversation_key AND hash = r.hash)"
    ),
    **{
        f"{table} without conversation": (
            f"SELECT conversation_key FROM {table} WHERE conversation_key NOT IN (SELECT key FROM conversation)"
        )
        for table in ("turn", "block", "carried", "standing", "standing_ref", "recall")
    },
}


def look_at(store: Store) -> tuple[dict[str, State], list[str]]:
    """The state of each space, and all contradictions. The store must not be open anywhere."""
    with open_tables(store) as session:
        damage = [] if is_on_server(store) else _damage(session)
        text = _text_index(store, session)
        return _states(session), [*damage, *_contradictions(session, text), *_wrong_figures(session, text)]


def _text_index(store: Store, session: Session) -> TextIndex:
    if is_on_server(store):
        from afterturn.stores.postgres.session import HashedTerms

        return HashedTerms(session)
    return FtsText(session)


def compare(
    actual: Mapping[str, State], before: Mapping[str, State], done: Sequence[Step], begun: Mapping[str, Step]
) -> tuple[list[str], Counter[str]]:
    """Differences to what was promised: the states `before`, then `done`. A step in `begun` is complete or absent."""
    wrong: list[str] = []
    counts: Counter[str] = Counter()
    for space in sorted(({step.space for step in done} | set(begun) | set(before)) - {LEARNER}):
        promised, held = before.get(space, {}), actual.get(space, {})
        for step in done:
            promised = after(promised, step) if step.space == space else promised
        step_begun = begun.get(space)
        if step_begun is not None and held == after(promised, step_begun):
            counts["unacknowledged kept"] += 1
        elif held != promised:
            labels = held.keys() | promised.keys()
            differing = sorted(label for label in labels if held.get(label) != promised.get(label))
            under_way = f"{step_begun.act} {step_begun.label}" if step_begun else "nothing"
            wrong.append(f"{space} differs in {differing[:5]}; under way was {under_way}")
        elif step_begun is not None:
            counts["unacknowledged absent"] += 1
    return wrong, counts


def check_learned(store: Store, done: Sequence[Step], begun: Step | None, *, drained: bool) -> list[str]:
    """Reviews are complete or absent, and learned once; after `drained`, rules have learned from every turn."""
    rows = read_rows(
        store,
        "SELECT e.text, e.origin, e.status FROM entry AS e JOIN space AS s ON s.key = e.space_key "
        "WHERE s.name = ? AND e.kind = 'statement'",
        (LEARNER,),
    )
    wrong: list[str] = []
    for step in [*done, *([begun] if begun else [])]:
        texts = [text for text, _, status in rows if step.label in str(text) and status == "active"]
        if step.act is StepKind.TIDY:
            wanted = step is not begun
            if wanted and not texts:
                wrong.append(f"{step.label} was added, and consolidation lost it")
            continue
        full = LEARNED_BY_A_REVIEW if step.act is StepKind.REVIEW else 1
        at_most = len(texts) in (0, full)
        is_promised = step is not begun and (step.act is StepKind.REVIEW or drained)
        if not at_most or (is_promised and len(texts) != full):
            wrong.append(f"{step.act} {step.label}: {len(texts)} of {full} memories are there")
    return wrong


def _states(session: Session) -> dict[str, State]:
    newest = session.rows(
        "SELECT name, version, status, kind, text FROM entry AS e JOIN space AS s ON s.key = e.space_key "
        "WHERE version = (SELECT max(version) FROM entry WHERE space_key = e.space_key AND id = e.id) ORDER BY e.key"
    )
    states: defaultdict[str, dict[str, ExpectedEntry]] = defaultdict(dict)
    for space, version, status, kind, text in newest:
        label = text.split(" ", 1)[0]
        earlier = states[space][label].texts if label in states[space] else ()
        states[space][label] = ExpectedEntry(version, Status(status), (*earlier, text), is_record=kind == "record")
    return dict(states)


def _damage(session: Session) -> list[str]:
    said = [f"integrity: {row[0]}" for row in session.rows("PRAGMA integrity_check") if row[0] != "ok"]
    try:
        # FTS5 compares its index with its content and raises if they differ.
        session.rows("INSERT INTO entry_terms (entry_terms) VALUES ('integrity-check')")
    except StoreCorrupt as error:
        said.append(f"integrity of the index: {error}")
    return said


def _contradictions(session: Session, text: TextIndex) -> list[str]:
    queries = {name: sql.format(key=text.key) for name, sql in _CONTRADICTIONS.items()}
    return [f"{name}: {row[0]}" for name, sql in queries.items() for row in session.rows(sql)]


def _wrong_figures(session: Session, text: TextIndex) -> list[str]:
    counted: Counter[tuple[int, str]] = Counter()
    totals: Counter[int] = Counter()
    for space_key, stored in session.rows(f"SELECT e.space_key, {text.column} FROM {text.source}"):
        found = text.terms(stored)
        counted.update((space_key, term) for term in set(found))
        totals[space_key] += len(found)
    kept = {(row[0], row[1]): row[2] for row in session.rows("SELECT space_key, term, documents FROM frequency")}
    wrong = [f"frequency of {key}" for key in kept.keys() | counted.keys() if kept.get(key, 0) != counted[key]]
    sums = session.rows("SELECT key, terms_total FROM space")
    return wrong + [f"terms of space {key}" for key, total in sums if total != totals[key]]
