"""A scene in which three turns get eight memories without repeats, and a compaction makes them recallable again."""

from __future__ import annotations

import re
from functools import partial

from afterturn.testing.model import Answer, Messages, call_tools
from afterturn.types import Draft
from lab.demo.host import Host, SceneContext
from lab.demo.screen import Cell, DemoFailed
from lab.demo.story import USER, Exchange, text_of

# Small limits, so that a few messages show what otherwise takes hundreds.
SETTINGS = {"recall_entries_max": 3}
LIMIT_TOKENS = 700

GUESTS = {
    "Anna": "is a vegan",
    "Boris": "eats no fish",
    "Chen": "comes late",
    "Dora": "brings her dog",
    "Emil": "drinks no wine",
    "Fay": "sits by the door",
    "Gus": "eats no onions",
    "Hana": "leaves at ten",
}


def _guests(messages: Messages) -> Answer:
    known = [name for name in GUESTS if f"Party guest {name}" in text_of(messages)]
    noted = [name for name in known if re.search(rf"^Noted: .*{name}", text_of(messages), re.MULTILINE)]
    fresh = [name for name in known if name not in noted]
    return f"Noted: {', '.join(fresh)}. That makes {len(known)}." if fresh else "I know of no guests."


# A poor summary: it names one guest of eight.
SUMMARY = (
    "<state_snapshot><overall_goal>Plan the party.</overall_goal><key_knowledge>- Anna is a vegan.</key_knowledge>"
    "<file_system_state></file_system_state><recent_actions>- Listed the guests.</recent_actions>"
    "<current_plan>[TODO] Choose the menu</current_plan></state_snapshot>"
)


def _invite(at: int, messages: Messages) -> Answer:
    known = [name for name in GUESTS if f"Party guest {name}" in text_of(messages)]
    return call_tools(("invite", {"guest": known[at]})) if at < len(known) else "I know of no more guests."


def _invited(messages: Messages) -> Answer:
    return f"I have sent {sum(message['role'] == 'tool' for message in messages)} invitations."


def _menu(messages: Messages) -> Answer:
    *_, latest = [str(message["content"]) for message in messages if message["role"] == "user"]
    return "Yes: a menu without meat for Anna." if "Anna is a vegan" in latest else "I would have to ask her."


INVITE = Exchange(
    "Send each party guest an invitation.",
    (*(partial(_invite, at) for at in range(len(GUESTS))), _invited),
    proof="8 invitations",
    terse=True,
)
ASKED = (
    Exchange("Who is a guest at the party?", (_guests,), proof="makes 3"),
    Exchange("Which other guest is at the party?", (_guests,), proof="makes 6"),
    Exchange("And the last guests at the party?", (_guests,), proof="makes 8"),
)
ASKED_LATER = Exchange("Is Anna a vegan?", (_menu,), proof="without meat")


async def play_party(play: SceneContext) -> None:
    statements = [f"Party guest {name} {habit}." for name, habit in GUESTS.items()]
    await play.ada.add_many([Draft(text) for text in statements])
    await play.memory.drain(within=5.0)
    play.screen.moment(
        [Cell("Ada", f"+ 8 notes: {statements[0]} …")],
        [f"ada.add_many(…): {len(statements)} statements", "for this scene, a block holds 3 memories"],
    )
    host = Host(play, play.memory.conversation("party", user=USER, standing="off"), show_memories=True)
    for exchange in ASKED:
        await host.play(exchange)
    await host.play(INVITE)
    await _compact(host, play)
    await host.play(ASKED_LATER)


async def _compact(host: Host, play: SceneContext) -> None:
    done = await host.compact(limit_tokens=LIMIT_TOKENS)
    if not done.changed:
        raise DemoFailed(f"Memory failed: the history was not compacted ({done.reason}).")
    named, kept = (sum(name in text for name in GUESTS) for text in (SUMMARY, str(done.messages[0])))
    play.screen.heading("The history is too long: compaction")
    play.screen.moment(
        [
            Cell("calls", f"→ conversation.compact(messages, limit_tokens={LIMIT_TOKENS})"),
            Cell("tool", f"← a <state_snapshot> for the first {done.summarised} messages"),
        ],
        [
            f"{done.tokens_before} tokens before, {done.tokens_after} after",
            f"the summary named {named} guest, memory added {kept - named}",
            "what was removed can be recalled again",
        ],
    )
