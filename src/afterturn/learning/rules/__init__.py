"""The rule-based reviewer: finds what users state, without a model. Pure functions; nothing is written here.

`sentences` splits a message, `clauses` has the shape of a rule, `extraction` applies the rules for explicit cases in
English, and `statements` finds everything else by the word lists in `vocabulary`.
Word lists are read, and patterns compiled, when the first message needs them.
"""

from afterturn.learning.rules.clauses import Lesson
from afterturn.learning.rules.extraction import find_lessons, may_teach
from afterturn.learning.rules.statements import supersedes

__all__ = ["Lesson", "find_lessons", "may_teach", "supersedes"]
