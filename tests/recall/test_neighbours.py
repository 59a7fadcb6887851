"""Who stands next to whom."""

from hypothesis import given
from hypothesis import strategies as st

from afterturn.recall.store_search import GAP_MAX, Neighbours
from afterturn.types import IndexedEntry, Kind, Origin


def record(key: int, position: int | None, conversation: str | None = "c", **fields) -> IndexedEntry:
    said = IndexedEntry(key, "user:ada", Kind.RECORD, Origin.USER, None, conversation, None, position, ())
    return said._replace(**fields)


def keys(*entries: IndexedEntry | None) -> list[int | None]:
    return [entry and entry.key for entry in entries]


def test_a_message_stands_between_the_one_before_and_the_one_after():
    """L6: in its conversation, in whatever order the messages are given."""
    first, second, third = record(1, 0), record(2, 1), record(3, 2)
    threads = Neighbours([third, first, second])
    assert keys(*threads.adjacent(second)) == [1, 3]
    assert keys(*threads.adjacent(first)) == [None, 2]
    assert keys(*threads.adjacent(third)) == [2, None]


def test_beyond_those_next_to_it_there_are_two_more():
    """L6: what is further away is no context."""
    said = [record(number, number) for number in range(7)]
    around = Neighbours(said).around(said[3])
    assert (keys(*around.near), keys(*around.far)) == ([2, 4], [1, 5])


def test_a_message_that_is_gone_leaves_a_gap_and_a_wider_one_parts():
    """L6: a deleted message does not end a conversation, a long silence of memory does."""
    first, second, third = record(1, 0), record(2, GAP_MAX), record(3, 2 * GAP_MAX + 1)
    threads = Neighbours([first, second, third])
    assert keys(*threads.adjacent(second)) == [1, None]
    assert keys(*threads.adjacent(third)) == [None, None]


def test_conversations_and_owners_do_not_mix():
    """L2: the same id under another owner, or in another space, is another conversation."""
    mine = record(1, 0)
    others = [
        record(2, 1, "other"),
        record(3, 1, owner="user:bob"),
        record(4, 1, space="team:a"),
        record(5, 1, space="team:a", owner="user:ada"),
    ]
    assert keys(*Neighbours([mine, *others]).adjacent(mine)) == [None, None]


def test_the_space_itself_is_an_owner_by_name_or_not():
    """L2: no owner means the space that it is stored in."""
    mine, answer = record(1, 0), record(2, 1, owner="user:ada")
    assert keys(*Neighbours([mine, answer]).adjacent(mine)) == [None, 2]


def test_statements_and_messages_without_a_place_have_no_neighbours():
    """L6: context is what was said around something."""
    said = record(1, 1)
    statement = record(2, 2, kind=Kind.STATEMENT)
    lost, alone = record(3, None), record(4, 2, None)
    threads = Neighbours([said, statement, lost, alone])
    assert keys(*threads.adjacent(said)) == [None, None]
    for other in (statement, lost, alone):
        assert threads.adjacent(other) == (None, None)
        assert threads.around(other) == ((), ())


def test_what_a_tool_answered_is_nobodys_neighbour():
    """C6: and has none, and those around it stand next to each other."""
    first, output, answer = record(1, 0), record(2, 1, origin=Origin.TOOL), record(3, 2)
    threads = Neighbours([first, output, answer])
    assert keys(*threads.adjacent(first)) == [None, 3]
    assert threads.adjacent(output) == (None, None)


def test_without_messages_nothing_is_beside_anything():
    """L6: an entry weighed alone."""
    assert Neighbours().adjacent(record(1, 1)) == (None, None)
    assert list(Neighbours()) == []


def test_of_two_messages_in_one_place_the_newer_stands_for_both():
    """L6: whichever was given first, so that the same memories always weigh the same."""
    first, older, newer = record(1, 0), record(2, 1), record(3, 1)
    for given_ in ([first, older, newer], [newer, older, first]):
        assert keys(*Neighbours(given_).adjacent(first)) == [None, 3]


def test_a_message_that_is_not_among_them_has_its_place_all_the_same():
    """L6: what is asked about need not be part of the context."""
    threads = Neighbours([record(1, 0), record(3, 2)])
    assert keys(*threads.adjacent(record(2, 1))) == [1, 3]


@given(st.dictionaries(st.integers(0, 40), st.sampled_from(["c", "d"]), max_size=25))
def test_neighbours_are_each_others(places):
    """L6: whoever is after one has it before, and nobody is next to itself."""
    said = [record(position, position, conversation) for position, conversation in places.items()]
    threads = Neighbours(said)
    for one in said:
        before, after = threads.adjacent(one)
        assert before is None or (threads.adjacent(before)[1] == one and before.position < one.position)
        assert after is None or (threads.adjacent(after)[0] == one and after.position > one.position)
    assert sorted(match.key for match in threads) == sorted(places)
