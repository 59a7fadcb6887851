"""One frozen table of every setting: unit, default and the reason to change it. The environment is read here only."""

import difflib
import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, get_args

from afterturn.errors import ConfigError, StoreUnavailable

ENVIRONMENT_PREFIX = "AFTERTURN_"
# The unit of a value that is in no representation, error or listing.
SECRET = "secret"


def _key(default: Any, unit: str, reason: str, *, choices: tuple[str, ...] = (), least: float | None = None) -> Any:
    metadata = {"unit": unit, "reason": reason, "choices": choices, "least": least}
    return field(default=default, repr=unit != SECRET, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """By argument, environment (`AFTERTURN_GRACE`), `~/.config/afterturn/config.toml`, default, in that order."""

    # where
    store: str | None = _key(
        None, "path or URL", "Where memories are kept when `open` and the CLI are given no target."
    )
    space: str | None = _key(None, "space", "The space that CLI commands use without `--space`.")
    tenant: str = _key("default", "name", "One process serves several customers whose data must never meet.")
    synchronous: str = _key(
        "full", "", "`normal` is faster; a power cut may then lose the last commits.", choices=("full", "normal")
    )
    busy_timeout: float = _key(5.0, "seconds", "Other processes write for longer than this at a time.", least=0)
    # switches
    recall: bool = _key(True, "", "Record only, recall nothing.")
    recording: bool = _key(True, "", "Recall only, keep nothing of new conversations.")
    rules: bool = _key(True, "", "Nothing is learned from what users say outright (remember that …, I prefer …).")
    consolidation: bool = _key(
        False, "", "In idle time, merge duplicates, settle contradictions, let unused ones fade."
    )
    background: bool = _key(True, "", "Another process (`afterturn worker`) does the jobs.")
    # embedder
    embedder: str = _key(
        "static",
        "",
        "`minilm` knows more than words; `http` asks a server of yours; `none` recalls by words alone.",
        choices=("static", "minilm", "http", "none"),
    )
    embedder_url: str | None = _key(None, "URL", "For `http`: an OpenAI-compatible server, as in model_url.")
    embedder_model: str | None = _key(None, "name", "For `http`: the embedding model behind `embedder_url`.")
    embedder_key: str | None = _key(None, SECRET, "For `http`: what that server wants as a bearer token.")
    embedder_dimensions: int | None = _key(
        None, "numbers", "For `http`: shorter vectors than the model's own, where it can give them.", least=1
    )
    embedder_timeout: float = _key(30.0, "seconds", "For `http`: when a call of the server is given up.", least=0)
    models_folder: str | None = _key(
        None, "path", "Model files are to lie elsewhere than in the user's cache, say for all users."
    )
    # recall
    grace: float = _key(0.05, "seconds", "How long a turn's first hand-over may wait for the fast recall.", least=0)
    recall_timeout: float = _key(5.0, "seconds", "When a recall is given up; nobody waits for it.", least=0)
    recall_entries_max: int = _key(16, "entries", "More or fewer memories in a block; 0 recalls nothing.", least=0)
    recall_score_min: float = _key(
        0.5, "score 0 to 1", "How good the best match must be to be worth the model's attention.", least=0
    )
    cues_max: int = _key(4, "cues", "How often a host may name a new focus in one turn.", least=0)
    refined: bool = _key(False, "", "A model chooses among what was found; one call of it for each user message.")
    # model
    model: str | None = _key(None, "name", "The model behind `model_url`, for refined recall, reviews and compaction.")
    model_url: str | None = _key(None, "URL", "An OpenAI-compatible server, such as http://localhost:8080/v1.")
    model_key: str | None = _key(None, SECRET, "What that server wants as a bearer token.")
    model_timeout: float = _key(30.0, "seconds", "When a call of the model is given up; no turn waits for it.", least=0)
    window_tokens: int | None = _key(
        None, "tokens", "The model's context window; then an event warns when memory takes much of it.", least=1
    )
    window_share_max: float = _key(0.1, "share 0 to 1", "From which share of the window that event warns.", least=0)
    tokens_per_day_max: int | None = _key(
        None, "tokens", "What models may cost a day for one space; then refined recall and reviews pause.", least=1
    )
    # learning
    recorder: str = _key(
        "verbatim",
        "",
        "`extracting` also has a model state what each turn taught; `none` keeps nothing of conversations.",
        choices=("verbatim", "extracting", "none"),
    )
    review_interval: int = _key(0, "turns", "After how many turns a model reviews a conversation; 0 is never.", least=0)
    review_model: str | None = _key(
        None, "name", "Another model behind `model_url` for reviews, such as a cheaper one."
    )
    review_timeout: float = _key(30.0, "seconds", "When a review is given up; it is not tried again.", least=0)
    review_entries_max: int = _key(5, "changes", "How much one review may change.", least=1)
    review_verbose: bool = _key(False, "", "An event tells the user what a review has saved.")
    review_compaction: bool = _key(False, "", "Review what `conversation.compacting` says is about to be lost.")
    approval: str = _key(
        "off",
        "",
        "`background`: what reviews learn waits in the inbox; `all`: whatever the user did not write themselves.",
        choices=("off", "background", "all"),
    )
    fade_days: float | None = _key(
        None,
        "days",
        "Consolidation hides learned memories that were neither recalled nor changed for so long.",
        least=1,
    )
    # standing context
    context_files: str = _key("AGENTS.md,MEMORY.md", "names", "Which files are read as standing context.")
    context_file_bytes_max: int = _key(16384, "bytes", "A longer context file is cut, and says so.", least=256)
    standing_bytes_max: int = _key(32768, "bytes", "The size of the standing block.", least=512)
    # budgets
    entry_bytes_max: int = _key(
        512, "bytes", "A memory's share of a block; longer ones show their best window.", least=64
    )
    block_bytes_max: int = _key(4096, "bytes", "The size of one block.", least=512)
    block_tokens_max: int = _key(1024, "tokens", "The size of one block for the model, estimated.", least=128)
    visible_bytes_max: int = _key(61440, "bytes", "What all visible blocks of a conversation may come to.", least=0)
    # guard
    statement_bytes_max: int = _key(
        8192, "bytes", "Longer statements are refused: a memory is one statement.", least=64
    )
    user_bytes_max: int | None = _key(None, "bytes", "What a space may hold about its user.", least=1)
    environment_bytes_max: int | None = _key(None, "bytes", "What a space may hold about the environment.", least=1)
    scanning: bool = _key(True, "", "Texts are scanned elsewhere; nothing is redacted or quarantined here.")
    record_bytes_max: int = _key(1048576, "bytes", "Longer messages are recorded cut, and say so.", least=1024)
    # time
    turn_idle_timeout: float = _key(
        86400.0, "seconds", "When an open turn that nobody came back to is abandoned.", least=1
    )
    close_timeout: float = _key(5.0, "seconds", "How long closing may take to finish what was promised.", least=0)
    records_retention_days: float | None = _key(None, "days", "Recorded messages must not be kept for longer.", least=0)
    # bounds
    index_bytes_max: int = _key(
        268435456,
        "bytes",
        "Memory for all spaces held ready for recall, with their words, vectors and names.",
        least=1048576,
    )
    timeline_entries_max: int = _key(10000, "entries", "How far back `afterturn trace` can look, per space.", least=100)
    recording_queue_max: int = _key(
        1000, "turns", "Turns that wait in memory while the store can not be written.", least=1
    )
    backups_max: int = _key(3, "files", "Automatic backups kept beside the store.", least=1)

    def __post_init__(self) -> None:
        for name in KEYS:
            object.__setattr__(self, name, _checked(name, getattr(self, name), "Config"))


KEYS = {item.name: item for item in fields(Config)}
# What some hosts call a setting; wherever settings come from, either name will do.
ALIASES = {f"memory_{name}": name for name in KEYS if name.startswith("review_")}
# The settings that shape a block: with them it can be made again, and with others another one.
SHAPING = (
    "recall_entries_max",
    "recall_score_min",
    "entry_bytes_max",
    "block_bytes_max",
    "block_tokens_max",
    "visible_bytes_max",
)


def load_config(
    overrides: Mapping[str, Any] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    path: "Path | None" = None,
) -> Config:
    """Merges the sources. ConfigError names the key, the value, where it stands and what would do."""
    environ = os.environ if environment is None else environment
    values = dict(_from_file(str(path or _existing_file(environ))))
    values.update(_from_environment(environ))
    for name, value in (overrides or {}).items():
        values[_named(name)] = _checked(_named(name), value, "the argument")
    return Config(**values)


def config_origins(
    overrides: Mapping[str, Any] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    path: "Path | None" = None,
) -> dict[str, str]:
    """Where each setting's value comes from: "argument", a variable's name, the settings file's path or "default"."""
    environ = os.environ if environment is None else environment
    file = str(path or _existing_file(environ))
    origins = dict.fromkeys(KEYS, "default")
    origins.update(dict.fromkeys(_from_file(file), file))
    origins.update({_named(name): ENVIRONMENT_PREFIX + name.upper() for name in _variables(environ)})
    origins.update({_named(name): "argument" for name in overrides or {}})
    return origins


def config_path(environment: Mapping[str, str] | None = None) -> "Path":
    return _path(_config_file(os.environ if environment is None else environment))


def config_folder(environment: Mapping[str, str] | None = None) -> "Path":
    """Where settings and context files for all projects usually are, wherever a variable says that settings are."""
    return _path(_folder(environment, "XDG_CONFIG_HOME", ".config"))


def default_store(environment: Mapping[str, str] | None = None) -> "Path":
    """Where the CLI and `open()` keep memories when nothing else is configured."""
    return _path(_folder(environment, "XDG_DATA_HOME", ".local", "share"), "memory.db")


def models_folder(config: Config, environment: Mapping[str, str] | None = None) -> "Path":
    """Where model files are kept: they can be had again, so it is a cache."""
    if config.models_folder is not None:
        return _path(config.models_folder).expanduser()
    return _path(_folder(environment, "XDG_CACHE_HOME", ".cache"), "models")


def _config_file(environ: Mapping[str, str]) -> str:
    return environ.get(ENVIRONMENT_PREFIX + "CONFIG") or os.path.join(
        _folder(environ, "XDG_CONFIG_HOME", ".config"), "config.toml"
    )


def _existing_file(environ: Mapping[str, str]) -> str:
    """A file that is named must be there; in the usual place there may be none."""
    file = _config_file(environ)
    if environ.get(ENVIRONMENT_PREFIX + "CONFIG") and not os.path.exists(file):
        raise ConfigError(f"{ENVIRONMENT_PREFIX}CONFIG names {file}, which is not there. Mend the name, or unset it.")
    return file


def _folder(environment: Mapping[str, str] | None, variable: str, *usual: str) -> str:
    environ = os.environ if environment is None else environment
    return os.path.join(environ.get(variable) or os.path.join(os.path.expanduser("~"), *usual), "afterturn")


def _path(*names: str) -> "Path":
    # Not above: a first answer goes without paths, which take 5 ms to load.
    return Path(*names)


def config_schema() -> dict[str, Any]:
    """The table as JSON Schema, for editors and for `afterturn config schema`."""
    properties = {name: _schema(name) for name in KEYS}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "afterturn settings",
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
    }


def _schema(name: str) -> dict[str, Any]:
    item = KEYS[name]
    types = [_JSON_TYPES[kind] for kind in _types_of(name)]
    unit = item.metadata["unit"]
    schema: dict[str, Any] = {
        "type": types[0] if len(types) == 1 else types,
        "default": item.default,
        "description": item.metadata["reason"] + (f" Unit: {unit}." if unit else ""),
    }
    if item.metadata["choices"]:
        schema["enum"] = list(item.metadata["choices"])
    if item.metadata["least"] is not None:
        schema["minimum"] = item.metadata["least"]
    return schema


def without_secret(name: str, value: Any) -> Any:
    """A setting's value as it may be shown."""
    return "***" if value and KEYS[name].metadata["unit"] == SECRET else value


_JSON_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def _types_of(name: str) -> tuple[type, ...]:
    annotation = KEYS[name].type
    return get_args(annotation) or (annotation,)


def _from_file(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"The settings file {path} can not be read: {error}. Mend or remove it.") from error
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"The settings file {path} is not valid TOML: {error}. Mend that line.") from error
    return {_named(name): _checked(_named(name), value, path) for name, value in table.items()}


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    found = {}
    for called in _variables(environ):
        name, variable = _named(called), ENVIRONMENT_PREFIX + called.upper()
        found[name] = _checked(name, _parsed(name, environ[variable]), variable)
    return found


def _variables(environ: Mapping[str, str]) -> list[str]:
    """What the environment sets, as it is called there; a setting's own name comes last and so counts."""
    return [name for name in (*ALIASES, *KEYS) if environ.get(ENVIRONMENT_PREFIX + name.upper())]


def _named(name: str) -> str:
    return ALIASES.get(name, name)


def _parsed(name: str, text: str) -> Any:
    if str in _types_of(name):
        return text
    if text.lower() in ("yes", "on"):
        return True
    if text.lower() in ("no", "off"):
        return False
    try:
        return json.loads(text.lower())
    except ValueError:
        return text


def _checked(name: str, value: Any, place: str) -> Any:
    if name not in KEYS:
        near = difflib.get_close_matches(name, KEYS, n=1)
        hint = f"Did you mean {near[0]!r}?" if near else "`afterturn config schema` lists them all."
        raise ConfigError(f"{place} sets {name!r}, which is no setting. {hint}")
    types = _types_of(name)
    if float in types and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        wanted = " or ".join(_JSON_TYPES[kind] for kind in types)
        article = "an" if wanted.startswith("i") else "a"
        shown = without_secret(name, repr(value))
        raise ConfigError(f"{place} sets {name!r} to {shown}. It must be {article} {wanted}.")
    _check_range(name, value, place)
    return value


def _check_range(name: str, value: Any, place: str) -> None:
    choices, least = KEYS[name].metadata["choices"], KEYS[name].metadata["least"]
    if choices and value not in choices:
        raise ConfigError(f"{place} sets {name!r} to {value!r}. It must be one of: {', '.join(choices)}.")
    if least is not None and isinstance(value, int | float) and not least <= value < float("inf"):
        raise ConfigError(f"{place} sets {name!r} to {value!r}. It must be a number of at least {least:g}.")


def find_store(target: object) -> Path:
    """The path that a text or a path names. StoreUnavailable for a URL of a kind that this version does not know."""
    text = os.fspath(target) if isinstance(target, str | os.PathLike) else target
    if not isinstance(text, str) or not text or "\x00" in text:
        raise StoreUnavailable(f'{text!r} is no path. Pass the path of a file, such as "memory.db".')
    scheme, separator, rest = text.partition("://")
    if not separator:
        return _expand_home(text)
    if scheme == "sqlite" and rest.startswith("/") and rest != "/":
        return Path(rest[1:])  # sqlite:///relative and sqlite:////absolute, as SQLAlchemy has taught people
    # Not the URL itself: it may hold a password.
    raise StoreUnavailable(f"A {scheme!r} URL is no store that this version can open. Pass a path, or sqlite:///path.")


def _expand_home(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise StoreUnavailable(f"{text!r} names a home folder that is not known. Write the path out.") from error
