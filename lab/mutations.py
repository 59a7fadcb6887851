"""`make mutations`: puts deliberate faults into a copy of the source and checks that some test fails for each.

A fault is one replaced piece of text. For each, the named tests run against a copy of `src` with that one change. At
the end, the tests that failed run once more on the unchanged source, where they must pass.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
PACKAGE = "afterturn"
# Each test has its own time limit, so a run takes longer only if pytest itself hangs.
_RUN_SECONDS_MAX = 900.0
_TESTS_FAILED = 1
_FAILURE = re.compile(r"^(?:FAILED|ERROR) (\S+?::\S.*?)(?: - .*)?$", re.MULTILINE)
# Names of statements, and the values that are bound.
_SQL_PARTS = (re.compile(r"^-- name: .*", re.MULTILINE), re.compile(r"\?"))
_CONFORMANCE = "tests/stores/test_sqlite_conformance.py"


@dataclass(frozen=True, slots=True)
class Fault:
    """`text` occurs exactly once in `file`, a path in the package. `effect` is what a user would notice."""

    area: str
    file: str
    text: str
    replacement: str
    effect: str
    tests: tuple[str, ...]

    def apply(self, source: Path) -> str:
        """The content of the file with the fault. Raises LookupError if the text is not found exactly once."""
        path = source / PACKAGE / self.file
        content = path.read_text(encoding="utf-8") if path.is_file() else ""
        if (count := content.count(self.text)) != 1:
            raise LookupError(f"{self.file}: {self.text!r} is found {count} times, not once.")
        return content.replace(self.text, self.replacement)

    def check(self, source: Path) -> None:
        """Raises SyntaxError or ValueError if the changed file could not be loaded, so that it would show nothing."""
        content = self.apply(source)
        if self.file.endswith(".json"):
            json.loads(content)
        elif self.file.endswith(".sql"):
            unchanged = (source / PACKAGE / self.file).read_text(encoding="utf-8")
            if [line.findall(content) for line in _SQL_PARTS] != [line.findall(unchanged) for line in _SQL_PARTS]:
                raise ValueError(f"{self.file}: the fault changes the names or the bound values of its statements.")
        else:
            compile(content, self.file, "exec")


FAULTS = (
    Fault(
        "recall",
        "recall/search.py",
        "size = more = min(_PAGE_MAX, max(more, limit - len(rows)) * _PAGE_GROWTH)",
        "break",
        "Excluded memories take the places of others: later turns recall too little.",
        ("tests/recall/test_searching.py",),
    ),
    Fault(
        "recall",
        "conversation/read_turn.py",
        "excluded_refs=ledger.refs,",
        "",
        "A memory that the model already sees is shown again in every turn.",
        ("tests/conversation/test_hand_over.py",),
    ),
    Fault(
        "recall",
        "conversation/read_turn.py",
        "visible_hashes=ledger.message_hashes,",
        "",
        "Memory repeats messages that are still in the conversation.",
        ("tests/conversation/test_hand_over.py",),
    ),
    Fault(
        "recall",
        "recall/answer.py",
        "lines_of(request.text, worth_showing(found.hits, config.recall_score_min))",
        "lines_of(request.text, found.hits)",
        "The score floor is ignored: unrelated memories are shown.",
        ("tests/conversation/test_explaining.py",),
    ),
    Fault(
        "recall",
        "recall/answer.py",
        "hits, restated = collapse([line for line in current if line not in standing])",
        "hits, restated = [line for line in current if line not in standing], []",
        "A block states the same fact twice.",
        ("tests/conversation/test_explaining.py",),
    ),
    Fault(
        "recall",
        "recall/query.py",
        "if not entry.is_valid(query.now) or entry.content_hash in query.visible_hashes:",
        "if entry.content_hash in query.visible_hashes:",
        "A memory that expires while it is cached is still recalled.",
        ("tests/recall/test_entry_cache.py",),
    ),
    Fault(
        "recall",
        "stores/sql/entries.py",
        "self.add(_VALID, at, at, at)",
        "pass",
        "Expired memories are recalled.",
        (f"{_CONFORMANCE}::TestStatuses", "tests/recall/test_lanes.py"),
    ),
    Fault(
        "recall",
        "types/entries.py",
        "return self.status is Status.ACTIVE and self.is_valid(at)",
        "return self.is_valid(at)",
        "A memory that was replaced or deleted after it was recalled is still delivered.",
        ("tests/conversation/test_stale_recalls.py",),
    ),
    Fault(
        "recall",
        "stores/sql/entries.py",
        'self.add("s.tenant = ?", scope.tenant)',
        "pass",
        "A tenant reads the space of the same name of another tenant.",
        (f"{_CONFORMANCE}::TestScopes", f"{_CONFORMANCE}::TestMemories"),
    ),
    Fault(
        "recall",
        "recall/index/space_index.py",
        "self._apply(index, changes.keys)",
        "pass",
        "The index does not follow changes: what another process added is not found.",
        ("tests/recall/test_index_cache.py",),
    ),
    Fault(
        "recall",
        "recall/block.py",
        "if self._entries <= 0 or",
        "if self._entries < 0 or",
        "A block holds one memory more than `recall_entries_max`.",
        ("tests/recall/test_budget.py",),
    ),
    Fault(
        "recall",
        "recall/block.py",
        "if len(text) <= bytes_max and _utf8_size(text) <= bytes_max:",
        "if len(text) <= bytes_max:",
        "Memories in Chinese or Russian exceed the byte limit, because characters are counted.",
        ("tests/recall/test_snippet.py",),
    ),
    Fault(
        "recall",
        "recall/block.py",
        "if not joins(text, at):\n            return at\n    return end",
        "return at\n    return end",
        "A cut separates an accent or a part of an emoji from its character.",
        ("tests/recall/test_snippet.py",),
    ),
    Fault(
        "delivery",
        "dialects/history.py",
        " or _is_open(step[: len(messages) - turn_start], len(messages)):",
        ":",
        "A block is put between a tool call and its response, and the provider rejects the request.",
        ("tests/conversation/test_hand_over.py",),
    ),
    Fault(
        "delivery",
        "conversation/delivery.py",
        "ready, self._ready = self._ready, None",
        "ready = self._ready",
        "The same block is delivered at every step of a turn.",
        ("tests/conversation/test_hand_over.py",),
    ),
    Fault(
        "delivery",
        "conversation/delivery.py",
        "if owner is not self._owner or self._ready is None:",
        "if self._ready is None:",
        "Of two open turns of a conversation, the earlier takes the block of the later.",
        ("tests/conversation/test_giving_up.py",),
    ),
    Fault(
        "delivery",
        "conversation/delivery.py",
        "messages.append(element)",
        "messages.insert(max(0, len(messages) - 1), element)",
        "A block is inserted before the user's message, which invalidates the provider's prompt cache.",
        ("tests/conversation/test_hand_over.py",),
    ),
    Fault(
        "delivery",
        "conversation/compactions.py",
        'self._prefetcher.drop_carried("compaction")',
        "pass",
        "A recall from before a compaction is delivered after it.",
        ("tests/conversation/test_prefetch_carried.py",),
    ),
    Fault(
        "delivery",
        "conversation/engine.py",
        "turn.ledger = turn.ledger.with_blocks(rows)",
        "pass",
        "The blocks of one turn exceed `VISIBLE_BYTES_MAX` together.",
        ("tests/conversation/test_budgets_in_turns.py",),
    ),
    Fault(
        "delivery",
        "conversation/prefetcher.py",
        "run.hits = hits\n",
        "run.hits = hits\n"
        "        turn.ledger = replace(turn.ledger, refs=turn.ledger.refs.union(hit.entry.ref for hit in hits))\n",
        "The ledger grows without an injection: what was recalled but not delivered never comes.",
        ("tests/conversation/test_prefetch_carried.py",),
    ),
    Fault(
        "delivery",
        "conversation/turn.py",
        "ends = turn.grace_ends.setdefault(correlation, now + grace)",
        "ends = now + grace",
        "Every step of a tool loop waits for a slow recall.",
        ("tests/conversation/test_hand_over.py",),
    ),
    Fault(
        "delivery",
        "conversation/read_turn.py",
        "if not needs_recall(asked):",
        "if not asked:",
        'A bare "ok" or "thanks" starts a recall.',
        ("tests/conversation/test_hand_over.py",),
    ),
    Fault(
        "recording",
        "stores/sql/conversations.py",
        'still = "recorded_at IS NULL" if recorded',
        'still = "1 = 1" if recorded',
        "A turn that is left twice under one id is recorded twice.",
        ("tests/conversation/test_recording_turns.py",),
    ),
    Fault(
        "recording",
        "conversation/recorder.py",
        "known_hashes={**blocks, **{row.hash: row for row in handed_over}}",
        "known_hashes=()",
        "Memory records its own blocks and recalls them as what the user said.",
        ("tests/conversation/test_recording_turns.py",),
    ),
    Fault(
        "recording",
        "guard/gate.py",
        "if not text.strip():",
        "if not text:",
        "Blank messages are recorded.",
        ("tests/guard/test_gate.py",),
    ),
    Fault(
        "recording",
        "guard/gate.py",
        '.decode(errors="ignore")',
        '.decode(errors="replace")',
        "A long recorded message is cut inside a character and ends in a replacement character.",
        ("tests/guard/test_gate.py",),
    ),
    Fault(
        "recording",
        "conversation/recorder.py",
        "self._recording[pending] = None",
        "self._recording[pending] = None\n        recorded.settle(True)",
        "`wait_recorded` returns True before the commit, and for turns that are lost.",
        ("tests/lifecycle/test_recording_trouble.py",),
    ),
    Fault(
        "recording",
        "conversation/finished_turns.py",
        "if failed and not completed:",
        "if failed and not messages:",
        "A turn that the host left with an exception is recorded.",
        ("tests/conversation/test_recording_turns.py",),
    ),
    Fault(
        "recording",
        "conversation/recorder.py",
        "if not completed and not found.ends_complete:",
        "if not found.messages:",
        "A turn without a final answer is recorded.",
        ("tests/conversation/test_recording_turns.py",),
    ),
    Fault(
        "recording",
        "conversation/recorder.py",
        "for pending in self._savable_turns() if not pending.saved]",
        "for pending in self._savable_turns() if pending.saved]",
        "A turn that the store cannot take before closing is lost.",
        ("tests/conversation/test_overload.py",),
    ),
    Fault(
        "guard",
        "scanners/secret_formats.json",
        '["ghp_", "gho_",',
        '["gho_",',
        "A GitHub token that was said is stored.",
        ("tests/guard/test_secrets.py",),
    ),
    Fault(
        "guard",
        "standing/lineage.py",
        "return entry.trust >= TRUST_MIN and ",
        "return ",
        "An untrusted memory is put into the system prompt.",
        ("tests/standing/test_standing_memories.py",),
    ),
    Fault(
        "guard",
        "guard/trust.py",
        "return draft.firm or draft.pinned or ",
        "return draft.firm or ",
        "A tool's output may pin a memory.",
        ("tests/guard/test_rights.py",),
    ),
    Fault(
        "guard",
        "hosts/server/tools.py",
        'origin="agent",\n        # A fact',
        "# A fact",
        "What a client of a server adds counts as the user's words.",
        ("tests/hosts/test_server_tools.py",),
    ),
    Fault(
        "guard",
        "hosts/server/tools.py",
        "if name not in grant.writable:",
        "if not grant.writable:",
        "A client of a server changes a space that it may only read.",
        ("tests/hosts/test_server_tools.py",),
    ),
    Fault(
        "guard",
        "hosts/server/typed_statements.py",
        "path.unlink()\n        fields",
        "path.touch()\n        fields",
        "What the user typed is stored again for a call in a later turn.",
        ("tests/hosts/test_server_tools.py",),
    ),
    Fault(
        "guard",
        "hosts/hooks/handler.py",
        """[*_call_messages("unseen", "client", {}, ""), session.user_message]""",
        "[session.user_message]",
        "A hook vouches for what an agent says that has read a repository's files.",
        ("tests/hosts/hooks/test_typed_words.py",),
    ),
    Fault(
        "guard",
        "hosts/hooks/typed.py",
        "sentences if _is_lasting(sentence)",
        "sentences",
        "An order for the task at hand becomes a standing preference.",
        ("tests/hosts/hooks/test_typed_words.py",),
    ),
    Fault(
        "guard",
        "hosts/server/tokens.py",
        "if version != self._version:",
        "if self._version is None:",
        "A running server accepts a token that was revoked.",
        ("tests/hosts/test_tokens.py",),
    ),
    Fault(
        "guard",
        "guard/gate.py",
        "min([clean.draft.origin.trust, *lineage])",
        "clean.draft.origin.trust",
        "A review that read a tool's output makes a trusted memory of it.",
        ("tests/guard/test_gate_trust.py",),
    ),
    Fault(
        "guard",
        "guard/quotas.py",
        "target)[1] + size > limit",
        "target)[1] > limit",
        "A space exceeds its quota by one memory of any size.",
        ("tests/guard/test_budgets.py",),
    ),
    Fault(
        "guard",
        "recall/block.py",
        "{neutralise(excerpt.text) or '…'}",
        "{excerpt.text or '…'}",
        "A memory can close the block's tag and speak outside it.",
        ("tests/recall/test_block.py",),
    ),
    Fault(
        "guard",
        "recall/block.py",
        "if entry.is_report:",
        "if entry.trust < 0:",
        "What a tool said reads like what the user said.",
        ("tests/guard/test_poisoning.py",),
    ),
    Fault(
        "store",
        "stores/sql/operations.py",
        "Status(before) if before is not None else Status.UNDONE",
        "Status.UNDONE",
        "Undoing an update or a delete does not bring the memory back.",
        (f"{_CONFORMANCE}::TestUndo",),
    ),
    Fault(
        "store",
        "stores/sql/entries.py",
        "found = self.text.take(keys)",
        "found = self.text.find(keys)",
        "The words of a forgotten memory stay in the full-text index.",
        ("tests/stores/test_forget_bytes.py",),
    ),
    Fault(
        "store",
        "stores/sql/forget.py",
        "AND space_key = ? AND {condition}",
        "AND space_key < ? AND {condition}",
        "The vector of a forgotten memory stays in the file.",
        ("tests/stores/test_forget_bytes.py",),
    ),
    Fault(
        "store",
        "stores/sql/forget.py",
        "while fresh:",
        "while False:",
        "A statement that was learned from a forgotten message stays.",
        (f"{_CONFORMANCE}::TestForgetting", f"{_CONFORMANCE}::TestForgetReach"),
    ),
    Fault(
        "store",
        "stores/sql/conversations.py",
        "AND seq > ? AND {condition}",
        "AND seq > ? + 1 AND {condition}",
        "A turn that began before a forget writes back what was forgotten.",
        (f"{_CONFORMANCE}::TestTombstones",),
    ),
    Fault(
        "store",
        "stores/sql/jobs.py",
        "state = 'leased' AND leased_until <= ?",
        "state = 'leased' AND leased_until >= ?",
        "Two processes run the same job.",
        (f"{_CONFORMANCE}::TestJobs",),
    ),
    Fault(
        "store",
        "stores/sqlite/engine.py",
        "outcomes = self._attempt(writes, isolated=True)",
        "outcomes = [self._failure(apsw.AbortError()) for _ in writes]",
        "One failing write fails the writes that share its commit.",
        ("tests/stores/sqlite/test_group_commit.py",),
    ),
    Fault(
        "store",
        "stores/sqlite/engine.py",
        'self.connection.execute("ROLLBACK TO unit")',
        "pass",
        "Half of a failing write is committed with the writes that share its commit.",
        ("tests/stores/sqlite/test_group_commit.py",),
    ),
    Fault(
        "store",
        "stores/sql/entries.py",
        "self.stats.left(key, space_key, found[key])\n            self.backlog",
        "self.backlog",
        "Deleted memories still count in the word frequencies, and indexes keep them.",
        (f"{_CONFORMANCE}::TestStats",),
    ),
)


@dataclass(frozen=True, slots=True)
class Result:
    """`caught_by` is the id of the first test that failed; `problem` says why there is none."""

    number: int
    fault: Fault
    seconds: float
    caught_by: str = ""
    problem: str = ""

    @property
    def text(self) -> str:
        return self.caught_by or self.problem


def try_fault(number: int, fault: Fault) -> Result:
    started = time.monotonic()

    def result(*, caught_by: str = "", problem: str = "") -> Result:
        return Result(number, fault, time.monotonic() - started, caught_by, problem)

    try:
        content = fault.apply(SOURCE)
    except LookupError as error:
        return result(problem=f"NOT APPLIED: {error}")
    with source_copy() as copy:
        (copy / PACKAGE / fault.file).write_text(content, encoding="utf-8")
        code, output = _run_tests(copy, [*fault.tests, "-x"])
    failures = _FAILURE.findall(output)
    if code == _TESTS_FAILED and failures:
        return result(caught_by=failures[0])
    if code == 0:
        return result(problem="SURVIVED")
    return result(problem=f"NOT TESTED: pytest ended with code {code}: {_last_line(output)}")


def find_unsound(tests: Iterable[str]) -> set[str]:
    """Those of `tests` that fail on the unchanged source too, so that they show nothing."""
    chosen = sorted(set(tests))
    if not chosen:
        return set()
    with source_copy() as copy:
        code, output = _run_tests(copy, chosen)
    return set() if code == 0 else set(_FAILURE.findall(output)) or set(chosen)


@contextmanager
def source_copy() -> Iterator[Path]:
    """With the compiled files, whose times agree with those of their sources: only the fault is compiled again."""
    with tempfile.TemporaryDirectory(prefix="afterturn-mutation-") as folder:
        yield Path(shutil.copytree(SOURCE, Path(folder) / "src"))


def _run_tests(source: Path, arguments: Sequence[str]) -> tuple[int, str]:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(source), str(ROOT)]),
        # Examples that fail because of a fault are not kept for other runs.
        "HYPOTHESIS_STORAGE_DIRECTORY": str(source.parent / "hypothesis"),
    }
    command = [sys.executable, "-m", "pytest", "-q", "--tb=no", "-rfE", "-p", "no:cacheprovider", *arguments]
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_RUN_SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return -1, f"no answer within {_RUN_SECONDS_MAX:.0f} seconds"
    return done.returncode, done.stdout


def _last_line(output: str) -> str:
    return next((line for line in reversed(output.splitlines()) if line.strip()), "")


def as_table(results: Sequence[Result]) -> str:
    lines = ["| # | area | fault: what a user would notice | caught by |", "|---|---|---|---|"]
    for one in results:
        caught_by = f"`{one.caught_by}`" if one.caught_by else f"**{one.problem}**"
        lines.append(f"| {one.number} | {one.fault.area} | {one.fault.effect} | {caught_by} |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.mutations", description=__doc__)
    parser.add_argument("--only", type=int, nargs="+", metavar="N", help="try only the faults with these numbers")
    parser.add_argument("--list", action="store_true", help="list the faults and end")
    options = parser.parse_args(arguments)
    chosen = [(number, fault) for number, fault in enumerate(FAULTS, 1) if number in (options.only or [number])]
    if options.list:
        for number, fault in chosen:
            print(f"{number:3} {fault.area:9} {fault.file}: {fault.effect}")
        return 0
    results: list[Result] = []
    for number, fault in chosen:
        results.append(try_fault(number, fault))
        print(f"{number:3} {results[-1].seconds:5.1f} s  {fault.effect} {results[-1].text}", flush=True)
    unsound = find_unsound(one.caught_by for one in results if one.caught_by)
    print(f"\n{as_table(results)}\n")
    for test in sorted(unsound):
        print(f"{test} fails on the unchanged source too")
    missed = [one for one in results if not one.caught_by or one.caught_by in unsound]
    print(f"{len(results) - len(missed)} of {len(results)} faults were caught")
    return 1 if missed or not results else 0


if __name__ == "__main__":
    sys.exit(main())
