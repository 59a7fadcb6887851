"""What goes into a block, whatever was found."""

from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from afterturn.config import Config
from afterturn.guard.output_filter import OutputFilter
from afterturn.recall.block import FRAME, VISIBLE_BYTES_MAX, Budget, Excerpt, bullet, choose, render
from afterturn.testing.entries import NOW, hit
from afterturn.text import estimate_tokens
from afterturn.types import Hit, Lane

line = partial(bullet, now=NOW)
texts = (
    st.text(max_size=40)
    | st.integers(1, 200).map("👍".__mul__)
    | st.text(st.sampled_from("ab cé猫👍🏽\u0301\n"), max_size=2000)
)


@st.composite
def hit_lists(draw: st.DrawFn) -> list[Hit]:
    lanes = draw(st.lists(st.sampled_from(list(Lane)), max_size=20))
    return [hit(draw(texts), id=f"e{number:03}", lane=lane) for number, lane in enumerate(lanes)]


budgets = st.builds(
    Budget,
    entries_max=st.integers(0, 12),
    entry_bytes_max=st.integers(64, 600),
    bytes_max=st.integers(0, 4096),
    tokens_max=st.integers(0, 1200),
)


def chosen(hits: list[Hit], budget: Budget) -> list[Excerpt]:
    return choose(hits, budget, frame=FRAME, line=line, screen=OutputFilter(scanning=True))


@given(hit_lists(), budgets)
def test_a_block_is_never_over_its_budget(hits, budget):
    """H9: entries, bytes and tokens, measured on the rendered block."""
    excerpts = chosen(hits, budget)
    assert len(excerpts) <= budget.entries_max
    if excerpts:
        block = render(excerpts, now=NOW)
        assert block.size_bytes <= budget.bytes_max
        assert block.tokens <= budget.tokens_max


@given(hit_lists(), budgets)
def test_no_entry_is_over_its_share(hits, budget):
    """H9: 512 bytes a memory, or what is configured."""
    assert all(len(excerpt.text.encode()) <= budget.entry_bytes_max for excerpt in chosen(hits, budget))


@given(hit_lists())
def test_no_lane_starves_another(hits):
    """H9: with the default budget every lane that found something shows its best."""
    excerpts = chosen(hits, Budget.of(Config()))
    shown = {excerpt.hit.entry.ref for excerpt in excerpts}
    for lane in Lane:
        best = next((found for found in hits if found.lane is lane), None)
        assert best is None or best.entry.ref in shown


@given(hit_lists(), budgets)
def test_the_same_hits_give_the_same_choice(hits, budget):
    """H9: nothing but the arguments decides."""
    assert chosen(hits, budget) == chosen(list(hits), budget)


def test_the_best_is_cut_shorter_rather_than_left_out():
    """H9: emoji cost three tokens each, and a small budget still shows some of them."""
    hits = [hit("👍" * 500, id=f"e{lane}", lane=lane) for lane in Lane]
    (shown,) = chosen(hits, Budget.of(Config())._replace(tokens_max=200))
    assert shown.hit is hits[0]
    assert 64 <= len(shown.text.encode()) < 256


def test_a_lane_with_much_to_say_leaves_room_for_the_others():
    """H9: five of eight entries at most while another lane waits."""
    loud = [hit("loud", id=f"l{number}", score=0.9) for number in range(20)]
    quiet = [hit("quiet", id=f"q{number}", lane=Lane.EPISODIC, score=0.2) for number in range(20)]
    excerpts = chosen(loud + quiet, Budget.of(Config(recall_entries_max=8)))
    assert [excerpt.hit.lane for excerpt in excerpts] == [Lane.LONG_TERM] * 5 + [Lane.EPISODIC] * 3


def test_a_lane_alone_may_use_the_whole_block():
    """H9: a ceiling is for sharing, not for leaving room unused."""
    loud = [hit("loud", id=f"l{number}") for number in range(20)]
    assert len(chosen(loud, Budget.of(Config(recall_entries_max=8)))) == 8


def test_what_does_not_fit_makes_way_for_what_does():
    """H9: a long memory does not end the block."""
    hits = [hit("long " * 90, id="l1"), hit("short", id="s1")]
    size = len(FRAME) + len(line(Excerpt(hits[1], "short"))) + 1
    assert [e.hit.entry.id for e in chosen(hits, Budget(8, 512, size, 1000))] == ["s1"]


def test_windows_of_long_memories_are_not_searched_for_without_end():
    """H9: eight long ones that do not fit are enough; short ones behind them still get in."""
    long = [hit("long " * 5000, id=f"l{number:03}") for number in range(100)]
    tried: list[str] = []

    def noted(excerpt: Excerpt) -> str:
        tried.append(excerpt.hit.entry.id)
        return line(excerpt)

    size = len(FRAME) + 64
    hits, screen = [*long, hit("short", id="s1")], OutputFilter(scanning=True)
    excerpts = choose(hits, Budget(8, 512, size, 1000), frame=FRAME, line=noted, screen=screen)
    assert [excerpt.hit.entry.id for excerpt in excerpts] == ["s1"]
    assert len(set(tried)) == 10


def test_visible_blocks_use_up_the_conversation():
    """H9: 60 KiB visible a conversation."""
    config = Config()
    assert Budget.of(config, visible_bytes=VISIBLE_BYTES_MAX - 700).bytes_max == 700
    assert chosen([hit("x")], Budget.of(config, visible_bytes=VISIBLE_BYTES_MAX)) == []


@given(st.text(max_size=300), st.text(max_size=300))
def test_the_parts_of_a_block_add_up(one, other):
    """H9: lines are counted one by one, so their sum must hold for the whole."""
    assert estimate_tokens(f"{one}\n{other}") <= estimate_tokens(f"{one}\n") + estimate_tokens(other) + 1


def test_ten_messages_of_a_conversation_leave_room_for_the_best_lasting_line():
    """L13, H9: though they would fill all bytes of the block, and come first."""
    scratch = [hit(f"Draft {at} " + "words " * 70, id=f"s{at}", lane=Lane.SHORT_TERM, score=0.9) for at in range(10)]
    lasting = hit("I never drink coffee", id="m1", lane=Lane.LONG_TERM, score=0.2)
    budget = Budget(entries_max=16, entry_bytes_max=512, bytes_max=2048, tokens_max=1024)
    shown = [excerpt.hit.entry.id for excerpt in chosen([*scratch, lasting], budget)]
    assert shown[0] == "s0"
    assert shown[-1] == "m1"
