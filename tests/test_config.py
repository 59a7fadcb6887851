"""Sources of settings, and errors about invalid ones."""

import json
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import afterturn
from afterturn import blocking
from afterturn.config import (
    ALIASES,
    DESCRIPTIONS,
    KEYS,
    Config,
    Settings,
    config_origins,
    config_schema,
    load_config,
    unknown_variables,
)
from afterturn.errors import ConfigError
from afterturn.testing import ScriptedModel


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config.toml"


def test_an_argument_beats_the_environment_beats_the_file_beats_the_default(file: Path) -> None:
    """The documented order, seen with the grace."""
    assert load_config(environment={}, path=file).grace == 0.2
    file.write_text("grace = 1")
    assert load_config(environment={}, path=file).grace == 1.0
    environment = {"AFTERTURN_GRACE": "2"}
    assert load_config(environment=environment, path=file).grace == 2.0
    assert load_config({"grace": 3}, environment=environment, path=file).grace == 3.0


@pytest.mark.parametrize(
    "written, expected", [("true", True), ("off", False), ("NO", False), ("on", True), ("False", False)]
)
def test_switches_in_the_environment_are_read_as_people_write_them(file: Path, written: str, expected: bool) -> None:
    assert load_config(environment={"AFTERTURN_RECALL": written}, path=file).recall is expected


@pytest.mark.parametrize(
    "values, hint",
    [
        ({"graze": 1}, "Did you mean 'grace'"),
        ({"colour": "blue"}, "config schema"),
        ({"grace": "soon"}, "must be a number"),
        ({"grace": -1}, "at least 0"),
        ({"grace": float("nan")}, "at least 0"),
        ({"grace": 10**400}, "too large"),
        ({"grace": True}, "must be a number"),
        ({"recall_score_min": 1.5}, "at most 1"),
        ({"cues_max": 2}, "'cues_max', which is not a setting"),
        ({"synchronous": "off"}, "full, normal"),
        ({"recall_entries_max": 2.5}, "must be an integer"),
    ],
)
def test_a_wrong_setting_says_which_and_what_would_do(file: Path, values: dict[str, object], hint: str) -> None:
    with pytest.raises(ConfigError, match=hint):
        load_config(values, environment={}, path=file)


def test_a_config_made_by_hand_is_checked_too() -> None:
    with pytest.raises(ConfigError, match="synchronous"):
        Config(synchronous="bogus")
    assert Config(grace=1).grace == 1.0


def test_a_secret_is_in_no_representation_and_no_error(file: Path) -> None:
    assert "sk-secret" not in repr(Config(model_key="sk-secret"))
    assert Config(model_key="sk-secret").model_key == "sk-secret"
    file.write_text("model_key = ['sk-secret']")
    with pytest.raises(ConfigError, match="model_key") as caught:
        load_config(environment={}, path=file)
    assert "sk-secret" not in str(caught.value)


def test_an_error_about_a_setting_names_its_source(file: Path) -> None:
    with pytest.raises(ConfigError, match="AFTERTURN_GRACE"):
        load_config(environment={"AFTERTURN_GRACE": "soon"}, path=file)
    file.write_text("graze = 1")
    with pytest.raises(ConfigError, match=r"config\.toml"):
        load_config(environment={}, path=file)
    file.write_text("grace = = 1")
    with pytest.raises(ConfigError, match="not valid TOML"):
        load_config(environment={}, path=file)


def test_every_setting_has_a_unit_a_default_and_a_reason() -> None:
    for name in KEYS:
        assert DESCRIPTIONS[name].reason.endswith("."), name
    assert set(config_schema()["properties"]) == set(KEYS) | set(ALIASES)
    json.dumps(config_schema())
    assert config_schema()["properties"]["recall_score_min"]["maximum"] == 1


def test_the_defaults_are_valid_settings(file: Path) -> None:
    given = {name: item.default for name, item in KEYS.items()}
    assert load_config(given, environment={}, path=file) == Config()


def test_a_settings_file_that_is_named_must_be_there(tmp_path: Path) -> None:
    """A name in the environment is meant; only the usual place may be empty."""
    missing = {"AFTERTURN_CONFIG": str(tmp_path / "missing.toml")}
    with pytest.raises(ConfigError, match="AFTERTURN_CONFIG"):
        load_config(environment=missing)
    with pytest.raises(ConfigError, match=r"missing\.toml"):
        config_origins(environment=missing)
    assert load_config(environment={"XDG_CONFIG_HOME": str(tmp_path)}) == Config()


def test_review_settings_have_a_second_name(tmp_path):
    """V1: `memory_review_interval` and the like are accepted wherever settings come from."""
    path = tmp_path / "config.toml"
    path.write_text("memory_review_interval = 3\n")
    environment = {"AFTERTURN_MEMORY_REVIEW_TIMEOUT": "7", "AFTERTURN_REVIEW_ENTRIES_MAX": "2"}
    config = load_config({"memory_review_verbose": True}, environment=environment, path=path)

    assert (config.review_interval, config.review_timeout) == (3, 7.0)
    assert (config.review_entries_max, config.review_verbose) == (2, True)


def test_two_names_of_one_setting_must_agree_within_a_source(tmp_path: Path) -> None:
    """V1: an argument still overrides the environment, whichever name each uses."""
    path = tmp_path / "config.toml"
    both = {"AFTERTURN_MEMORY_REVIEW_INTERVAL": "3", "AFTERTURN_REVIEW_INTERVAL": "5"}
    with pytest.raises(ConfigError, match="AFTERTURN_MEMORY_REVIEW_INTERVAL and AFTERTURN_REVIEW_INTERVAL"):
        load_config(environment=both, path=path)
    with pytest.raises(ConfigError, match="review_interval and memory_review_interval"):
        load_config({"review_interval": 3, "memory_review_interval": 4}, environment={}, path=path)
    agreed = {"AFTERTURN_MEMORY_REVIEW_INTERVAL": "3", "AFTERTURN_REVIEW_INTERVAL": "3"}
    assert load_config({"memory_review_interval": 7}, environment=agreed, path=path).review_interval == 7
    path.write_text("review_interval = 1\nmemory_review_interval = 2\n")
    with pytest.raises(ConfigError, match=r"different values in .*config\.toml"):
        load_config(environment={}, path=path)


def test_variables_that_are_not_settings_are_found_with_a_hint() -> None:
    known = {"AFTERTURN_GRACE": "1", "AFTERTURN_CONFIG": "x", "AFTERTURN_MEMORY_REVIEW_TIMEOUT": "1", "HOME": "/"}
    unknown = {"AFTERTURN_GRAZE": "1", "AFTERTURN_COLOUR_OF_THE_SKY": "blue"}
    found = unknown_variables({**known, **unknown})
    assert list(found) == sorted(unknown)
    assert found["AFTERTURN_GRAZE"] == "Did you mean AFTERTURN_GRACE?"


def test_a_hint_goes_by_the_name_without_its_prefix() -> None:
    """The prefix is common to all, so it must not make two names alike."""
    assert unknown_variables({"AFTERTURN_ZZZ": "1"}) == {
        "AFTERTURN_ZZZ": "`afterturn config schema` lists the settings."
    }


@pytest.mark.parametrize("settings", ["w", ["grace"], 3])
def test_settings_that_are_not_a_dictionary_are_explained(settings) -> None:
    """`from afterturn import *` replaces the built-in `open`, whose second argument is a mode."""
    with pytest.raises(ConfigError, match="Pass a dictionary"):
        afterturn.open("memory.db", settings)
    with pytest.raises(ConfigError, match="Pass a dictionary"):
        afterturn.recall_once("tea", user="ada", store="memory.db", config=settings)


def test_a_setting_whose_name_is_not_text_is_unknown() -> None:
    with pytest.raises(ConfigError, match="None, which is not a setting"):
        afterturn.open("memory.db", {None: 1})  # type: ignore[dict-item]


@pytest.mark.parametrize("name", ["model", "review_model", "compaction_model", "provider", "on_event", "components"])
def test_open_refuses_a_component_of_the_wrong_type(name: str) -> None:
    """`open(path, model="gpt-5")` would otherwise fail in the background, after the first turns."""
    with pytest.raises(afterturn.InvalidInput, match=f"`{name}` is a str. Pass "):
        afterturn.open("memory.db", **{name: "gpt-5"})


def test_the_dictionary_of_settings_has_the_fields_of_the_config() -> None:
    """What an editor completes in `open(path, {...})` is what there is."""
    expected = {name: item.type for name, item in KEYS.items()}
    expected |= {alias: KEYS[name].type for alias, name in ALIASES.items()}
    assert get_type_hints(Settings) == expected


def test_a_setting_as_an_argument_of_open_is_explained() -> None:
    with pytest.raises(TypeError, match=r'grace is a setting: open\(path, {"grace": 1}\)'):
        afterturn.open("memory.db", grace=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="no argument 'graze'"):
        afterturn.open("memory.db", graze=1)  # type: ignore[call-arg]


def test_an_unknown_variable_is_logged_once_and_shown_by_doctor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AFTERTURN_BUSY_TIMOUT", "1")
    for _ in range(2):
        with blocking.open(tmp_path / "memory.db", {"embedder": "none"}) as memory:
            findings = memory.check()
    warnings = [record.getMessage() for record in caplog.records if "AFTERTURN_BUSY_TIMOUT" in record.getMessage()]
    assert warnings == [
        "the environment variable AFTERTURN_BUSY_TIMOUT is not a setting. Did you mean AFTERTURN_BUSY_TIMEOUT?"
    ]
    assert [one.level for one in findings if "AFTERTURN_BUSY_TIMOUT" in one.message] == ["warning"]


@pytest.mark.parametrize("settings, named", [({"model": "small"}, "model_url"), ({"refined": "only"}, "model_url")])
def test_a_model_that_nothing_can_call_is_an_error_with_a_remedy(settings: dict[str, Any], named: str) -> None:
    """R7: with `refined="only"` there would never be a block; a model's name alone would do nothing."""
    with pytest.raises(ConfigError, match=named):
        afterturn.open("memory.db", settings)
    with pytest.raises(ConfigError, match=named):
        blocking.open("memory.db", settings)
    afterturn.open("memory.db", settings, model=ScriptedModel())
    afterturn.open("memory.db", settings | {"model_url": "http://localhost:8080/v1"})


@pytest.mark.parametrize("written, expected", [("true", True), ("off", False), ("only", "only")])
def test_a_switch_with_a_third_value_is_read_from_the_environment(file: Path, written: str, expected: object) -> None:
    """R7: `refined` is a switch, or "only"."""
    assert load_config({}, environment={"AFTERTURN_REFINED": written}, path=file).refined == expected
    with pytest.raises(ConfigError, match="one of: false, true, only"):
        load_config({"refined": "sometimes"}, environment={}, path=file)
