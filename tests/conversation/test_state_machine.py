"""Conversations of random hosts, in good times and bad, held against a simple model of what every host was promised.

`pytest tests/turn/test_state_machine.py --hypothesis-profile=explore` looks for new ones.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hosted import FORMATS, Format, check_pairs, seen_twice
from hosting import CONFIG, KNOWN, SAID, TROUBLES, Host
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from scripted_selector import MoodyModel

from afterturn import blocking

STYLES = st.sampled_from(["append", "append", "merge", "hidden", "block"])
WAYS = st.sampled_from(["now", "grace", "grace", "within", "refined"])
ENDS = st.sampled_from(["leaves", "leaves", "finishes", "lingers"])
Draw = Callable[[st.SearchStrategy[Any]], Any]
# How often each is chosen, among what is possible.
ACTIONS: dict[str, tuple[int, Callable[[Host, Draw], None]]] = {
    "user_speaks": (8, lambda host, draw: host.user_speaks(draw(SAID), durable=draw(st.integers(0, 4)) == 0)),
    "host_injects": (8, lambda host, draw: host.host_injects(draw(WAYS))),
    "model_calls_tools": (5, lambda host, draw: host.model_calls_tools(draw(st.integers(1, 3)))),
    "tools_answer": (8, lambda host, draw: host.tools_answer()),
    "user_interjects": (2, lambda host, draw: host.user_interjects(draw(SAID))),
    "host_cues": (2, lambda host, draw: host.host_cues(draw(SAID))),
    "user_types": (1, lambda host, draw: host.watched(lambda: host.conversation.expect(draw(SAID)))),
    "model_answers": (3, lambda host, draw: host.model_answers(draw(ENDS))),
    "host_leaves_late": (2, lambda host, draw: host.host_leaves_late()),
    "host_aborts": (1, lambda host, draw: host.host_aborts()),
    "host_compacts": (2, lambda host, draw: host.host_compacts(is_told=draw(st.booleans()), keeps=draw(st.booleans()))),
    "host_rewinds": (1, lambda host, draw: host.host_rewinds(draw(st.integers(1, 4)))),
    "host_rebuilds": (2, lambda host, draw: host.host_rebuilds()),
    "host_copies_its_list": (1, lambda host, draw: host.host_copies_its_list()),
    "host_resets": (1, lambda host, draw: host.host_resets()),
    "store_has_trouble": (2, lambda host, draw: host.store_has_trouble(draw(st.sampled_from(TROUBLES)))),
    "selector_changes_its_mind": (2, lambda host, draw: host.model.change(draw(st.sampled_from(MoodyModel.MOODS)))),
    "everything_settles": (8, lambda host, draw: host.everything_settles()),
    "somebody_learns": (1, lambda host, draw: host.somebody_learns(draw(st.sampled_from(KNOWN)))),
    "process_ends_and_another_begins": (1, lambda host, draw: host.process_ends_and_another_begins()),
}


def possible(host: Host) -> set[str]:
    """What a host can do now. It must not depend on how quick memory was, or a failure could not be found again."""
    found = set(ACTIONS) - {"host_rebuilds", "host_leaves_late", "selector_changes_its_mind", "host_rewinds"}
    at_rest = not host.waiting
    if host.turn is None:
        found -= {"host_injects", "user_interjects", "host_cues", "model_answers", "host_aborts", "model_calls_tools"}
        found |= {"host_rewinds"} if host.own > 2 else set()
    else:
        found -= {"user_speaks"}
    found -= set() if host.waiting else {"tools_answer"}
    found -= {"host_compacts"} if host.own < 2 or not at_rest else set()
    found -= set() if at_rest else {"user_interjects", "model_answers", "model_calls_tools"}
    found |= {"host_rebuilds"} if host.style == "append" and at_rest and host.messages else set()
    found |= {"host_leaves_late"} if host.lingering else set()
    return found | ({"selector_changes_its_mind"} if host.refined else set())


class Hosts(RuleBasedStateMachine):
    """One conversation of one host, whose memory is closed and opened again now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.host: Host | None = None

    @initialize(form=st.sampled_from(FORMATS), style=STYLES, named=st.booleans(), refined=st.booleans())
    def begin(self, *, form: Format, style: str, named: bool, refined: bool) -> None:
        self.host = Host(_template(), form, style, named=named, refined=refined)

    @rule(data=st.data())
    def something_happens(self, data: st.DataObject) -> None:
        assert self.host is not None
        names = [name for name in sorted(possible(self.host)) for _ in range(ACTIONS[name][0])]
        ACTIONS[data.draw(st.sampled_from(names))][1](self.host, data.draw)

    @invariant()
    def calls_stay_with_their_responses(self) -> None:
        """H1: nothing stands between them."""
        if self.host is not None:
            check_pairs(self.host.messages, self.host.form)

    @invariant()
    def nothing_is_seen_twice(self) -> None:
        """H5: in what the host shows, each memory stands once."""
        if self.host is not None and self.host.style != "hidden" and not self.host.forgetful:
            assert seen_twice(self.host.messages, self.host.form) == []

    @invariant()
    def no_complaint_is_heard(self) -> None:
        assert self.host is None or self.host.complaints.heard == []

    @invariant()
    def recalls_are_no_more_than_what_was_said(self) -> None:
        """R1, H7: whatever the number of steps; one more for each compaction."""
        if self.host is None:
            return
        started = self.host.told.named("recall_started")
        epochs = Counter(event.turn for event in started if event.data["cause"] != "compaction")
        again = Counter(event.turn for event in started if event.data["cause"] == "compaction")
        told = Counter(event.turn for event in self.host.told.named("epoch_started"))
        assert all(count <= self.host.questions[turn] for turn, count in epochs.items())
        compacted = Counter(event.turn for event in self.host.told.named("compacted"))
        assert all(count <= compacted[turn] for turn, count in again.items())
        assert all(told[turn] >= count for turn, count in epochs.items())

    def teardown(self) -> None:
        if self.host is not None:
            self.host.end()
            check_outcomes(self.host)


def check_outcomes(host: Host) -> None:
    """R5: each phase of each recall has one; what is carried may wait for a turn that never comes."""
    ended = Counter((event.data["correlation"], event.data["phase"]) for event in host.told.named("recall_ended"))
    carried = {event.data["correlation"] for event in host.told.named("recall_carried")}
    started = {event.data["correlation"] for event in host.told.named("recall_started")}
    phases = ("fast", "refined") if host.refined else ("fast",)
    assert {one for one, count in ended.items() if count > 1} == set()
    assert {correlation for correlation, _ in ended} <= started
    assert {(one, phase) for one in started - carried for phase in phases} - set(ended) == set()


_folder = tempfile.TemporaryDirectory()


@cache
def _template() -> Path:
    """A store that knows something, made once and copied for each conversation."""
    path = Path(_folder.name) / "memory.db"
    with blocking.open(path, CONFIG) as memory:
        for text in KNOWN:
            memory.space("user:ada").add(text)
    return path


# In the suite a failure is told as it was found: threads take their own time, and making it shorter takes minutes.
PHASES = [Phase.explicit, Phase.generate] if settings().derandomize else list(Phase)
EXAMPLES = 150 if settings().derandomize else settings().max_examples
TestHosts = pytest.mark.slow(pytest.mark.timeout(7200 if EXAMPLES > 150 else 240)(Hosts.TestCase))
TestHosts.settings = settings(max_examples=EXAMPLES, stateful_step_count=40, phases=PHASES)
