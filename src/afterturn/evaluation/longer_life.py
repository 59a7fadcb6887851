"""Makes the lives of an everyday file more like real ones: answers of several paragraphs, and much small talk.

Both are made of templates, and are the same each time.
"""

import random
from dataclasses import replace

from afterturn.evaluation.everyday_file import EverydayExchange, EverydaySession, Person

_PARAGRAPHS = (
    "Let me lay that out in order. Begin with whatever cannot wait, then look at the parts that depend on it, and "
    "leave the finishing touches for the end. If one part takes longer than you thought, move on and come back to it.",
    "There are two sensible ways to go about this. The quick one gives you something usable today, with a few rough "
    "edges. The careful one takes longer and is easier to live with. Most people start with the first and improve it.",
    "It is worth checking a couple of details before you commit: whether anybody else needs to agree, what it would "
    "cost to change your mind, and how you would notice that it is not working. None of that needs to be perfect.",
    "A short list usually helps more than a long plan. Note the next three things to do, put the smallest one first, "
    "and cross them off as you go. When the list is empty, look at the whole again and write the next one.",
    "I can expand on any of these points, put them into a table, or turn them into a message that you can send. Just "
    "say which part matters to you, and whether you would like more detail or less of it.",
)
_PARAGRAPHS_ADDED = 3
# What a long history mostly consists of: things that pass, and small requests. Any two fit together.
_WHEN = ("this morning", "last night", "at noon", "a moment ago", "on my way back", "over breakfast", "around four")
_WHAT = ("the toaster", "my left shoe", "the elevator", "a pen", "the radio", "the blinds", "the tram door", "my scarf")
_WHERE = ("the corner shop", "the bus stop", "the market", "the canteen", "the car park", "the bank", "the lobby")
_HOW = ("sleepy", "cheerful", "a little off", "wide awake", "hungry again", "rather lazy", "quite content")
_REMARKS = (
    "I ate a banana {when}, that was about it.",
    "I'm {how} at the moment.",
    "I feel {how} today, no idea why.",
    "{what} got stuck {when}, but it sorted itself out.",
    "There was a long line at {where} {when}.",
    "I dropped {what} {when}, nothing happened.",
    "I ran into drizzle near {where} {when}.",
    "I hummed the same tune all the way to {where}.",
    "Somebody left an umbrella at {where} {when}.",
    "I stared out of the window {when} and got {how}.",
    "I made tea {when} and forgot to drink it.",
    "We laughed about {what} {when}.",
    "The queue at {where} made me {how}.",
    "I counted the stairs to {where}, for no reason.",
    "I was {how} {when}, it passed.",
    "Could you make this sentence sound friendlier?",
    "Give me another word for quick.",
    "What is a good rhyme for orange?",
    "How many grams are in two pounds?",
    "Please shorten this to one line.",
)
_REPLIES = ("Right.", "Good to know.", "That can happen.", "Done.", "Sure, here it is.", "Sounds like a day.")
_PAUSE_SECONDS = 3 * 3600.0


def make_filler(count: int, seed: int) -> list[EverydayExchange]:
    """`count` exchanges that nobody asks about later."""
    pick = random.Random(seed)
    words = {"when": _WHEN, "what": _WHAT, "where": _WHERE, "how": _HOW}
    said = [
        pick.choice(_REMARKS).format(**{name: pick.choice(some) for name, some in words.items()}) for _ in range(count)
    ]
    return [EverydayExchange(text[0].upper() + text[1:], pick.choice(_REPLIES)) for text in said]


def add_filler(person: Person, count: int) -> Person:
    """The person with small talk as sessions of its own, spread between the others."""
    filler = make_filler(count, len(person.name) + count)
    share = -(-count // len(person.sessions))
    sessions: list[EverydaySession] = []
    for at, session in enumerate(person.sessions):
        sessions.append(session)
        if part := tuple(filler[at * share : (at + 1) * share]):
            sessions.append(EverydaySession(f"{session.id} small talk", session.at + _PAUSE_SECONDS, part))
    return replace(person, sessions=tuple(sessions))


def lengthen_answers(person: Person) -> Person:
    """The person with answers of several paragraphs. What they say first is what they said before."""
    count, sessions = 0, []
    for session in person.sessions:
        exchanges = []
        for exchange in session.exchanges:
            added = [_PARAGRAPHS[(count + at) % len(_PARAGRAPHS)] for at in range(_PARAGRAPHS_ADDED)]
            exchanges.append(replace(exchange, assistant="\n\n".join([exchange.assistant, *added])))
            count += 1
        sessions.append(replace(session, exchanges=tuple(exchanges)))
    return replace(person, sessions=tuple(sessions))
