"""English: what an agent may be told to do, always or never. "Never give up" is not among it."""

from __future__ import annotations

import re

# How somebody is spoken to, and what is arranged for them, tells about them; the rest tells about the work.
TALK = r"""
    address answer apologi[sz]e call curse explain flatter greet interrupt joke lecture mention patroni[sz]e praise
    quote refer reply respond sign speak spell sugarcoat summari[sz]e swear talk thank translate
    """.split()
ARRANGE = r"book buy cook find look\sfor move order pick plan recommend remind reserve schedule search suggest".split()
GIVE = r"send give(?!\sup) show tell offer provide".split()
WORK = r"""
    add allow amend append approve archive ask assign assume attach back branch build bump cache catch cc change
    check cherry-pick choose clean close comment commit compile confirm copy create delete deploy disable document
    drop edit enable ensure escape export expose fix follow force force-push format generate handle hardcode
    hard-code hash ignore import include indent initiali[sz]e insert install
    keep(?!\s(?:going|smiling|calm|trying|dreaming|moving|on|the\sfaith|an\sopen)\b)
    leave link lint list load lock log make mark merge migrate mix mock modify name omit open overwrite paste pin post
    prefer prefix print process publish pull push put raise read rebase redact refactor refund release remove rename
    replace require reset restart return reuse revert review rewrite rm round run saniti[sz]e save ship skip sort split
    squash start store stage submit suppress switch tag test throw touch track trim type update upgrade upload use
    validate verify version wait warn wrap write
    """.split()

VERB = rf"(?:{'|'.join([*TALK, *ARRANGE, *GIVE, *WORK])})(?=\s|$|[,;(])"

_OF_USER = re.compile(
    rf"(?:{'|'.join([*TALK, *ARRANGE, 'be', 'stop'])})\b"
    rf"|(?:{'|'.join(GIVE)})\b(?=\sme\b|.*\b(?:temperatures?|prices?|units|dates|times|distances)\b)",
    re.IGNORECASE,
)
_OF_TALK = re.compile(
    r"""\b(?:emojis?|your\s(?:answers?|repl(?:y|ies)|responses?|messages?|tone)|(?:every|each|any|a)\s(?:answer|reply|
    response)|replies|answers|responses|talk\sto\sme|when(?:ever)?\si\sask|my\s(?:first\s|last\s|full\s)?name|
    with\sme|jargon|bullet\spoints|small\stalk|(?:british|american)\s(?:spelling|english))\b""",
    re.IGNORECASE | re.VERBOSE,
)


def is_of_user(instruction: str) -> bool:
    """Whether an instruction that begins with its verb tells how somebody wants to be served."""
    return bool(_OF_USER.match(instruction) or _OF_TALK.search(instruction))
