"""Providers that compact the context themselves: what their model no longer sees may be recalled again (H7)."""

from typing import Any

import pytest
from anthropic.types.beta import BetaMessage
from controlled_store import Stage, caught_up, learn_herbs, letters
from hosted import ANTHROPIC, RESPONSES, Format, Listed
from openai.types.responses import ResponseCompactionItem

SOUP = "What goes into the soup?"
THREE = {"recall_entries_max": 3}
USAGE = {"input_tokens": 1, "output_tokens": 1}

# What `context_management=[{"type": "compaction", "compact_threshold": n}]` adds to the output of a response.
ITEM: dict[str, Any] = {"id": "cmp_1", "type": "compaction", "encrypted_content": "gAAAAABo"}
# What `context_management={"edits": [{"type": "compact_20260112"}]}` adds to the content of an answer.
BLOCK = {"type": "compaction", "content": "The user asked what goes into a soup.", "encrypted_content": None}


def _anthropic(text: str, cleared: int, blocks: Listed) -> dict[str, Any]:
    """An answer of the API: which edits were applied to its request is next to its content."""
    edit = {"type": "clear_tool_uses_20250919", "cleared_tool_uses": cleared, "cleared_input_tokens": 50_000}
    thinking = {"type": "clear_thinking_20251015", "cleared_thinking_turns": 2, "cleared_input_tokens": 900}
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [*blocks, {"type": "text", "text": text}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": USAGE,
        "context_management": {"applied_edits": [thinking, *([edit] if cleared else [])]},
    }


def _wholly(text: str) -> list[Any]:
    return [{"role": "assistant", "content": [BLOCK, {"type": "text", "text": text}]}]


FORMS = [
    pytest.param(RESPONSES, lambda text: [ITEM, RESPONSES.assistant(text)], id="a compaction item"),
    pytest.param(
        RESPONSES,
        lambda text: [ResponseCompactionItem.model_validate(ITEM), RESPONSES.assistant(text)],
        id="an item of the client",
    ),
    pytest.param(ANTHROPIC, _wholly, id="a compaction block"),
    pytest.param(ANTHROPIC, lambda text: [_anthropic(text, 8, [])], id="cleared tool uses"),
    pytest.param(
        ANTHROPIC, lambda text: [BetaMessage.model_validate(_anthropic(text, 8, []))], id="a message of the client"
    ),
]


@pytest.mark.parametrize("form, compacted", FORMS)
async def test_what_is_before_a_providers_compaction_is_recalled_again(
    stage: Stage, form: Format, compacted: Any
) -> None:
    """H7: found when the next turn begins, though the host's list still has our block."""
    async with stage.open(**THREE) as memory:
        await learn_herbs(memory, stage.clock)
        conversation = memory.conversation("c", user="ada", dialect=form.name)
        messages: list[Any] = [form.user(SOUP)]
        shown = []
        for answer in (compacted("Herbs."), [form.assistant("More herbs.")], [form.assistant("Enough.")]):
            async with conversation.turn(messages) as turn:
                shown.append(letters(await turn.inject(messages)))
                messages += answer
            assert await turn.wait_recorded()
            messages.append(form.user(SOUP))
        await caught_up(memory)
    assert shown == ["ABC", "ABC", "DEF"]
    assert [event.data["how"] for event in stage.told.named("compacted")] == ["seen"]
    assert stage.count("blocks_put_back") == 0


async def test_what_users_said_before_the_item_of_a_compact_list_is_seen(stage: Stage) -> None:
    """H7: the output of `/responses/compact` is what users said, our blocks too, and one item: the model sees it."""
    async with stage.open(**THREE) as memory:
        await learn_herbs(memory, stage.clock)
        conversation = memory.conversation("c", user="ada", dialect=RESPONSES.name)
        messages: list[Any] = [RESPONSES.user(SOUP)]
        shown = []
        for _ in range(2):
            async with conversation.turn(messages) as turn:
                shown.append(letters(await turn.inject(messages)))
                messages.append(RESPONSES.assistant("Herbs."))
            assert await turn.wait_recorded()
            messages = [*(one for one in messages if one.get("role") == "user"), ITEM, RESPONSES.user(SOUP)]
        await caught_up(memory)
    assert shown == ["ABC", "DEF"]


@pytest.mark.parametrize("form, compacted", FORMS)
async def test_a_providers_compaction_in_the_middle_of_a_turn_is_noticed_at_the_next_point(
    stage: Stage, form: Format, compacted: Any
) -> None:
    """H7: one event, one more query, and the very next point offers the full set."""
    async with stage.open(**THREE) as memory:
        await learn_herbs(memory, stage.clock)
        messages: list[Any] = [form.user(SOUP)]
        async with memory.conversation("c", user="ada", dialect=form.name).turn(messages) as turn:
            first = await turn.inject(messages)
            messages += [*compacted("Let me look."), *form.calls(["one"]), *form.answers(["one"])]
            again = await turn.inject(messages)
            messages += [*form.calls(["two"]), *form.answers(["two"])]
            assert await turn.inject(messages) is None
            messages.append(form.assistant("Herbs."))
        await caught_up(memory)
    assert (letters(first), letters(again)) == ("ABC", "ABC")
    assert stage.count("compacted", how="seen") == 1
    assert stage.count("recall_started", cause="compaction") == 1


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param({"role": "assistant", "content": [{**BLOCK, "content": None}]}, id="a compaction that failed"),
        pytest.param(_anthropic("Let me look.", 0, []), id="cleared thinking"),
    ],
)
async def test_what_leaves_the_context_as_it_is_changes_nothing(stage: Stage, answer: dict[str, Any]) -> None:
    """H7: a failed compaction is a no-op, and thinking never had a block in it."""
    async with stage.open(**THREE) as memory:
        await learn_herbs(memory, stage.clock)
        messages: list[Any] = [ANTHROPIC.user(SOUP)]
        async with memory.conversation("c", user="ada", dialect="anthropic").turn(messages) as turn:
            await turn.inject(messages)
            messages += [answer, *ANTHROPIC.calls(["one"]), *ANTHROPIC.answers(["one"])]
            assert await turn.inject(messages) is None
            turn.abort()
        await caught_up(memory)
    assert stage.count("compacted") == 0


async def test_edits_that_a_provider_applies_again_are_one_compaction(stage: Stage) -> None:
    """H7: every later request clears the same tool uses, and its answer says so; more of them are another one."""
    async with stage.open(**THREE) as memory:
        await learn_herbs(memory, stage.clock)
        conversation = memory.conversation("c", user="ada", dialect="anthropic")
        messages: list[Any] = []
        for cleared in (8, 8, 8, 11):
            messages.append(ANTHROPIC.user(SOUP))
            async with conversation.turn(messages) as turn:
                await turn.inject(messages)
                messages += [
                    _anthropic("Let me look.", cleared, []),
                    *ANTHROPIC.calls(["one"]),
                    *ANTHROPIC.answers(["one"]),
                ]
                await turn.inject(messages)
                messages.append(_anthropic("Herbs.", cleared, []))
            assert await turn.wait_recorded()
        await caught_up(memory)
    assert stage.count("compacted") == 2
