"""Every rule of docs/behaviour.md has a test, and every rule code in a test's docstring is on that page."""

import pytest

import behaviour


def test_every_rule_has_a_test():
    tests = behaviour.find_tests()
    assert [rule for rule in _rules() if rule not in tests] == []


def test_every_rule_that_a_test_names_is_on_the_page():
    rules = _rules()
    assert {rule: tests for rule, tests in behaviour.find_tests().items() if rule not in rules} == {}


def test_every_section_of_the_page_is_a_rule_and_none_is_there_twice():
    rules = _rules()
    assert len(rules) == behaviour.PAGE.read_text(encoding="utf-8").count("\n### ")
    assert len(rules) == len(set(rules))


def test_only_the_start_of_a_docstring_names_rules():
    assert behaviour.rules_named("C2, C3: durable before it is reported, see H4.") == ["C2", "C3"]
    assert behaviour.rules_named("A word about L3.") == []


def test_the_command_prints_the_tests_of_a_rule(capsys: pytest.CaptureFixture[str]):
    behaviour.main(["H2"])
    heading, *tests = capsys.readouterr().out.strip().splitlines()
    assert heading == "H2 Exactly once"
    assert [name.strip() for name in tests] == behaviour.find_tests()["H2"]


def test_the_command_refuses_a_rule_that_is_not_on_the_page():
    with pytest.raises(SystemExit, match="no rule H99"):
        behaviour.main(["H99"])


def _rules() -> list[str]:
    return [rule for rule, _ in behaviour.find_rules(behaviour.PAGE.read_text(encoding="utf-8"))]
