"""docs/behaviour.md says which rules are kept; here the tests it names are held against the tests that exist."""

import behaviour


def test_every_listed_rule_is_shown_by_a_test():
    shown = behaviour.find_tests()
    unshown = [rule for rule in behaviour.rules_listed(_page()) if rule not in shown]
    assert unshown == []


def test_every_rule_that_a_test_names_is_listed():
    listed = behaviour.rules_listed(_page())
    unlisted = {rule: tests for rule, tests in behaviour.find_tests().items() if rule not in listed}
    assert unlisted == {}


def test_the_lists_of_tests_are_those_that_exist():
    assert behaviour.render(_page(), behaviour.find_tests()) == _page(), "Run `make behaviour` and read its diff."


def test_no_rule_is_listed_twice():
    listed = behaviour.rules_listed(_page())
    assert len(listed) == len(set(listed))


def test_only_the_opening_of_a_docstring_names_rules():
    assert behaviour.rules_named("C2, C3: durable before it is said, see H4.") == ["C2", "C3"]
    assert behaviour.rules_named("A word about L3.") == []


def test_rendering_twice_changes_nothing_more():
    page = "# Behaviour\n\n## Recall\n\n### L3 Exclusion\nWords.\n\n### L5 Floor\nWords.\n\n## Rest\nWords.\n"
    once = behaviour.render(page, {"L3": ["tests/a.py::test_b"]})
    assert "### L3 Exclusion\nWords.\n\nShown by:\n\n- `tests/a.py::test_b`\n\n### L5" in once
    assert behaviour.render(once, {"L3": ["tests/a.py::test_b"]}) == once


def _page() -> str:
    return behaviour.PAGE.read_text(encoding="utf-8")
