"""The rule-based reviewer: what users say explicitly, found without a model. Pure; writing is left to others."""

from afterturn.learn.rules.finding import find_lessons, may_teach
from afterturn.learn.rules.languages import LANGUAGES
from afterturn.learn.rules.lesson import Lesson

__all__ = ["LANGUAGES", "Lesson", "find_lessons", "may_teach"]
