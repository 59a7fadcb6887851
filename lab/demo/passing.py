"""What Ada says in passing, and nobody asked to remember: learned behind the turns, shown, taken back, approved."""

from __future__ import annotations

import re

from afterturn.testing.model import Answer, Messages, ScriptedModel, call_tools
from afterturn.types import ReviewKind
from lab.demo.host import Host, Play
from lab.demo.stage import Said, StoryBroken, count_bytes, show_command
from lab.demo.story import USER, Exchange, heard

CONVERSATION = "passing"
LESSON = "Long lists tire the user"
# In two pieces, so that nobody takes it for one that somebody has lost here.
TOKEN = "ghp_" + "9tXqLr4VbC2mZk7WsYd1HfJ8uNePa3oT5gRi"
TURNS = 3
LEARNS = {"review_interval": TURNS}
ASKS_FIRST = {"approval": "background"}
_DEPOSIT = "Pay them the deposit, "
_BASIL = "You are Basil. You book tables."
_WITHIN = 5.0
_STANDING = re.compile(r"^- \[[0-9a-z.]+\] (.*)$", re.MULTILINE)


def _greet(messages: Messages) -> Answer:
    """The words of either: a model that is shown what Ada said would understand it as well as what was learned."""
    name = re.search(r"Call the user (\w+)|call me (\w+)", heard(messages))
    greeting = f"Good evening, {name[1] or name[2]}." if name else "Good evening."
    if "Long lists tire" in heard(messages):
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
UNTAUGHT = Exchange(GREETED, (_greet,), proof="Good evening, Addie. At Casa Nova, Satay House")


def reviewer() -> ScriptedModel:
    """Plays the model that reviews: it looks for the message that says it, and proposes what that message teaches."""
    return ScriptedModel(_propose, "Nothing to save.")


def _propose(messages: Messages) -> Answer:
    said = re.search(r'"message": (\d+),[^\n]*Long lists tire me', heard(messages))
    if said is None:
        return "Nothing to save."
    lesson = {"text": LESSON, "target": "user", "kind": "preference", "messages": [int(said[1])]}
    return call_tools(("add_memory", lesson))


async def play_first(play: Play) -> None:
    host = Host(play, play.memory.conversation(CONVERSATION, user=USER))
    named, told, paid = FIRST
    await host.play(named)
    await _tell_learned(play, ReviewKind.RULES, "learned behind the turn, without a model:")
    await host.play(told)
    await host.play(paid)
    await _tell_redacted(play)
    await _tell_learned(play, ReviewKind.INTERVAL, f"after {TURNS} turns, a model (played) reviewed them:")


async def play_third(play: Play) -> None:
    await Host(play, play.memory.conversation("taxi", user=USER)).play(SECOND)
    await _meet(play, "third", THIRD)


async def play_undoing(play: Play) -> None:
    review = await _newest(play, ReviewKind.INTERVAL)
    show_command(play.stage, play.store, ["review", "show", review])
    show_command(play.stage, play.store, ["review", "undo", review])
    play.stage.line("Ada's words stay on record; what was learned from them is gone.")
    await _meet(play, "fourth", UNTAUGHT)


async def play_approving(play: Play) -> None:
    await play.ada.run_review(CONVERSATION, everything=True)
    waiting = [entry for entry in await play.ada.proposals() if entry.text == LESSON]
    if len(waiting) != 1:
        raise StoryBroken("Memory failed: what the review learned does not wait in the inbox.")
    play.stage.moment(
        [Said("calls", f'→ ada.run_review("{CONVERSATION}", everything=True)')],
        ['the same with approval="background":', "what it learned waits in Ada's inbox"],
    )
    show_command(play.stage, play.store, ["inbox", "list"])
    show_command(play.stage, play.store, ["inbox", "approve", waiting[0].id])
    await _meet(play, "fifth", THIRD)


async def _meet(play: Play, id: str, exchange: Exchange) -> None:
    """A new conversation, whose system prompt ends with what holds in every one."""
    conversation = play.memory.conversation(id, user=USER)
    system = await conversation.standing().appended(_BASIL)
    stands = _STANDING.findall(system)
    play.stage.moment(
        [Said("note", "(a new conversation)")], ["in the system prompt:", *(f"  {one}" for one in stands)]
    )
    await Host(play, conversation, system=system).play(exchange)


async def _tell_learned(play: Play, kind: ReviewKind, title: str) -> None:
    await play.memory.drain(within=_WITHIN)
    review = await play.ada.review(await _newest(play, kind))
    learned = [f"  + {change.after.text}" for change in review.changes if change.after is not None]
    if not learned:
        raise StoryBroken("Memory failed: a review learned nothing.")
    play.stage.moment([], [title, *learned])


async def _newest(play: Play, kind: ReviewKind) -> str:
    rows = await play.ada.reviews(conversation=CONVERSATION)
    found = [row.id for row in rows if row.kind is kind]
    if not found:
        raise StoryBroken("Memory failed: there was no review. Are rules or reviews switched off?")
    return found[0]


async def _tell_redacted(play: Play) -> None:
    [entry] = [entry for entry in await play.ada.list() if entry.text.startswith(_DEPOSIT)]
    if count_bytes(play.store, TOKEN):
        raise StoryBroken("Memory failed: a token is in its files. Is scanning switched off?")
    play.stage.moment([], [f"kept: {entry.text.removeprefix(_DEPOSIT)}"])
