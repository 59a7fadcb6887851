"""Scenes about learning: in the background, with a review that is shown, undone and approved."""

from __future__ import annotations

import re

from afterturn.testing.model import Answer, Messages, ScriptedModel, call_tools
from afterturn.types import ReviewKind
from lab.demo.host import Host, SceneContext
from lab.demo.screen import Cell, DemoFailed, count_bytes, show_command
from lab.demo.story import USER, Exchange, text_of

CONVERSATION = "first"
LESSON = "Long lists tire the user"
# In two pieces, so that secret scanners do not report this file.
TOKEN = "ghp_" + "9tXqLr4VbC2mZk7WsYd1HfJ8uNePa3oT5gRi"
TURNS = 3
LEARNS = {"review_interval": TURNS}
ASKS_FIRST = {"approval": "background"}
_DEPOSIT = "Pay them the deposit, "
_BASIL = "You are Basil. You book tables."
_WITHIN = 5.0
_STANDING = re.compile(r"^- (?!\[)(.*)$", re.MULTILINE)


def _greet(messages: Messages) -> Answer:
    """Accepts Ada's own words and the learned ones, as a real model would."""
    name = re.search(r"Call the user (\w+)|call me (\w+)", text_of(messages))
    greeting = f"Good evening, {name[1] or name[2]}." if name else "Good evening."
    if "Long lists tire" in text_of(messages):
        return f"{greeting} At Casa Nova?"
    return f"{greeting} At Casa Nova, Satay House, Il Faro, The Oak, Chez Zoe or Miro's?"


FIRST = (
    Exchange("Is Casa Nova open at noon? And call me Addie, please.", ("It is, all week.",)),
    Exchange("Their waiter read us twenty desserts once. Long lists tire me.", ("I can imagine.",)),
    Exchange(f"{_DEPOSIT}my token is {TOKEN}.", ("Paid.",)),
)
SECOND = Exchange("Cancel the taxi, please.", ("It is cancelled.",))
GREETED = "Good evening! Where shall we meet on Sunday?"
THIRD = Exchange(GREETED, (_greet,), proof="Good evening, Addie. At Casa Nova?")
AFTER_UNDO = Exchange(GREETED, (_greet,), proof="Good evening, Addie. At Casa Nova, Satay House")


def reviewer() -> ScriptedModel:
    """The scripted review model: it proposes one memory, and nothing more when it has read everything."""
    return ScriptedModel(_propose, "Nothing to save.", "Nothing to save.")


def _propose(messages: Messages) -> Answer:
    said = re.search(r'"message": (\d+),[^\n]*Long lists tire me', text_of(messages))
    if said is None:
        return "Nothing to save."
    lesson = {"text": LESSON, "target": "user", "kind": "preference", "messages": [int(said[1])]}
    return call_tools(("add_memory", lesson))


async def play_first(play: SceneContext) -> None:
    host = Host(play, play.memory.conversation(CONVERSATION, user=USER))
    named, noted, paid = FIRST
    await host.play(named)
    await _show_learned(play, ReviewKind.RULES, "learned in the background, without a model:")
    await host.play(noted)
    await host.play(paid)
    await _show_redacted(play)
    await _show_learned(play, ReviewKind.INTERVAL, f"after {TURNS} turns, a scripted model reviewed:")


async def play_third(play: SceneContext) -> None:
    await Host(play, play.memory.conversation("taxi", user=USER)).play(SECOND)
    await _meet(play, "third", THIRD)


async def play_undoing(play: SceneContext) -> None:
    review = await _newest(play, ReviewKind.INTERVAL)
    show_command(play.screen, play.store, ["review", "show", review])
    show_command(play.screen, play.store, ["review", "undo", review])
    play.screen.line("Ada's messages stay recorded; what was learned from them is removed.")
    await _meet(play, "fourth", AFTER_UNDO)


async def play_approving(play: SceneContext) -> None:
    await play.ada.run_review(CONVERSATION, everything=True)
    await play.events.take(until="proposed")
    waiting = [entry for entry in await play.ada.proposals() if entry.text == LESSON]
    if len(waiting) != 1:
        raise DemoFailed("Memory failed: what the review learned does not wait in the inbox.")
    play.screen.moment(
        [Cell("calls", f'→ ada.run_review("{CONVERSATION}", everything=True)')],
        ['with approval="background",', "what it learned goes to Ada's inbox"],
    )
    show_command(play.screen, play.store, ["inbox", "list"])
    show_command(play.screen, play.store, ["inbox", "approve", waiting[0].id])
    await _meet(play, "fifth", THIRD)


async def _meet(play: SceneContext, id: str, exchange: Exchange) -> None:
    """Begins a new conversation; its system prompt ends with the standing memories."""
    conversation = play.memory.conversation(id, user=USER)
    system = await conversation.standing().appended(_BASIL)
    found = _STANDING.findall(system)
    # What this scene teaches, and how much else there is.
    standing = [one for one in found if "Addie" in one or "lists" in one]
    standing.append(f"and {len(found) - len(standing)} more lines")
    play.screen.moment(
        [Cell("note", "(a new conversation)")], ["in the system prompt:", *(f"  {one}" for one in standing)]
    )
    await Host(play, conversation, system=system).play(exchange)


async def _show_learned(play: SceneContext, kind: ReviewKind, title: str) -> None:
    await play.memory.drain(within=_WITHIN)
    review = await play.ada.review(await _newest(play, kind))
    learned = [f"  + {change.after.text}" for change in review.changes if change.after is not None]
    if not learned:
        raise DemoFailed("Memory failed: a review learned nothing.")
    play.screen.moment([], [title, *learned])


async def _newest(play: SceneContext, kind: ReviewKind) -> str:
    rows = await play.ada.reviews(conversation=CONVERSATION)
    found = [row.id for row in rows if row.kind is kind]
    if not found:
        raise DemoFailed("Memory failed: there was no review. Are rules or reviews switched off?")
    return found[0]


async def _show_redacted(play: SceneContext) -> None:
    [entry] = [entry for entry in await play.ada.list() if entry.text.startswith(_DEPOSIT)]
    if count_bytes(play.store, TOKEN):
        raise DemoFailed("Memory failed: a token is in its files. Is scanning switched off?")
    play.screen.moment([], [f"stored: {entry.text.removeprefix(_DEPOSIT)}"])
