"""The rule-based reviewer: what users say explicitly, found without a model. Pure; writing is left to others."""

from collections.abc import Sequence

from afterturn.learning.rules.clauses import Lesson
from afterturn.learning.rules.sentences import LANGUAGES, may_teach

__all__ = ["LANGUAGES", "Lesson", "find_lessons", "may_teach"]


def find_lessons(messages: Sequence[tuple[str, str]]) -> list[Lesson]:
    """What users said, of messages as (role, text): in the order in which they said it, each once.

    Only the role "user" teaches; what "assistant" says tells what a correction corrects.
    """
    # A hundred patterns take a quarter of a second to compile: whoever never learns goes without.
    from afterturn.learning.rules.extraction import find_lessons as find

    return find(messages)
