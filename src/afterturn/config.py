"""All settings in one frozen table: type, unit, default and description. The environment is read here only."""

import difflib
import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypedDict, get_args
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from afterturn.errors import ConfigError, StoreUnavailable
from afterturn.scanners.detection import DEFAULT_SCANNERS, PERSONAL_DATA_CHOICES, ScanPolicy
from afterturn.text import regex

ENVIRONMENT_PREFIX = "AFTERTURN_"
STATE_VARIABLE = ENVIRONMENT_PREFIX + "STATE"
# The unit of a value that is never shown in a `repr`, an error or a listing.
SECRET = "secret"
# The unit of a value that may contain a password, so that it is not shown in a `repr` either.
URL = "path or URL"


def _key(
    default: Any,
    unit: str,
    reason: str,
    *,
    choices: tuple[str, ...] = (),
    least: float | None = None,
    most: float | None = None,
) -> Any:
    metadata = {"unit": unit, "reason": reason, "choices": choices, "least": least, "most": most}
    return field(default=default, repr=unit not in (SECRET, URL), metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The settings. An argument overrides the environment (`AFTERTURN_GRACE`), which overrides the file
    `~/.config/afterturn/config.toml`, which overrides the default."""

    # where
    store: str | None = _key(
        None,
        URL,
        "The store that `open()` and commands use if no other is named. none: a file in your data folder.",
    )
    spill_folder: str | None = _key(
        None,
        "path",
        "The folder for turns that wait because the store cannot be written. none: next to the store, or in your state "
        "folder if the store is a URL.",
    )
    keys: str | None = _key(
        None,
        "path",
        "The folder with the keys of spaces, apart from the store and its backups. A store that is created with it is "
        "sealed: see docs/keys.md. none: nothing is sealed.",
    )
    space: str | None = _key(
        None, "space", "The space that commands use without `--space`. none: `user:` and your login name."
    )
    tenant: str = _key("default", "name", "Separates the data of several customers in one store.")
    synchronous: str = _key(
        "full",
        "",
        "`full` makes every commit survive a power cut; `normal` is faster and may lose the last commits.",
        choices=("full", "normal"),
    )
    busy_timeout: float = _key(
        5.0,
        "seconds",
        "How long a write waits for a lock whose holder makes no progress. While other processes write, it waits 12 "
        "times as long.",
        least=0,
    )
    # switches
    recall: bool = _key(True, "", "Recalls memories in turns. If false, turns are only recorded.")
    recording: bool = _key(True, "", "Records finished turns. If false, memories are only recalled.")
    briefing: bool = _key(
        True, "", "Lets `conversation.briefing()` say how the last conversation in the same project ended."
    )
    rules: bool = _key(True, "", "Learns from plain statements (remember that …, I prefer …), without a model.")
    consolidation: bool = _key(
        False, "", "In idle time, merges duplicates, resolves contradictions and hides unused memories."
    )
    background: bool = _key(
        True, "", "Runs background jobs in this process. If false, another process runs them (`afterturn worker`)."
    )
    # embedder
    embedder: str = _key(
        "static",
        "",
        "Makes the vectors. `minilm` finds more by meaning; `http` calls your server; `none` searches by words only.",
        choices=("static", "minilm", "http", "none"),
    )
    embedder_url: str | None = _key(None, "URL", "For `http`: an OpenAI-compatible server, as in `model_url`.")
    embedder_model: str | None = _key(None, "name", "For `http`: the embedding model on that server.")
    embedder_key: str | None = _key(None, SECRET, "For `http`: the bearer token for that server.")
    embedder_dimensions: int | None = _key(
        None, "numbers", "For `http`: shorter vectors than the model's own, if the server supports it.", least=1
    )
    # recall
    grace: float = _key(0.2, "seconds", "How long `inject` waits for the fast recall, once per user input.", least=0)
    recall_timeout: float = _key(
        5.0, "seconds", "When waiting for a recall ends. What it finds later is carried to the next turn.", least=0
    )
    recall_entries_max: int = _key(16, "entries", "How many entries a block may contain; 0 recalls nothing.", least=0)
    recall_score_min: float = _key(
        0.22, "chance 0 to 1", "If the best match has a lower chance of helping, nothing is recalled.", least=0, most=1
    )
    refined: bool = _key(False, "", "Lets a model select from what was found, with one model call per user message.")
    # model
    model: str | None = _key(
        None, "name", "The name of the model at `model_url`, for refined recall, reviews and compaction."
    )
    model_url: str | None = _key(None, "URL", "An OpenAI-compatible server, such as http://localhost:8080/v1.")
    model_key: str | None = _key(None, SECRET, "The bearer token for that server.")
    window_tokens: int | None = _key(
        None,
        "tokens",
        "The size of the model's context window: the limit for `compact`, and for the event `window_share`.",
        least=1,
    )
    tokens_per_day_max: int | None = _key(
        None,
        "tokens",
        "How many model tokens a space may use per day. Above it, refined recall and reviews pause.",
        least=1,
    )
    # learning
    recorder: str = _key(
        "verbatim",
        "",
        "What is stored of a turn. `verbatim`: its messages; `extracting`: statements by a model too; `none`: nothing.",
        choices=("verbatim", "extracting", "none"),
    )
    review_interval: int = _key(
        0, "turns", "A model reviews a conversation after every this many turns; 0 means never.", least=0
    )
    review_model: str | None = _key(
        None, "name", "Another model at `model_url` for reviews, for example a cheaper one."
    )
    review_timeout: float = _key(
        30.0,
        "seconds",
        "How long a review may take. A review that takes longer changes nothing and is not retried.",
        least=0,
    )
    review_entries_max: int = _key(5, "changes", "How many changes one review may make.", least=1)
    review_verbose: bool = _key(
        False, "", "Sends the event `memories_saved` after a review that changed memories, to show to the user."
    )
    review_compaction: bool = _key(
        False, "", "Reviews the messages that a compaction is about to remove (`conversation.compacting`)."
    )
    approval: str = _key(
        "off",
        "",
        "Who else needs approval. `background`: reviews; `all`: everybody except the user.",
        choices=("off", "background", "all"),
    )
    fade_days: float | None = _key(
        None,
        "days",
        "Consolidation hides learned memories that were neither recalled nor changed for this long.",
        least=1,
    )
    # standing context
    standing: bool = _key(
        True, "", "Brings the standing block with the first block of a conversation whose host does not ask for it."
    )
    context_files: str = _key("AGENTS.md,MEMORY.md", "names", "The names of context files, separated by commas.")
    standing_bytes_max: int = _key(32768, "bytes", "The largest size of the standing block.", least=512)
    standing_chars_max: int = _key(
        2560,
        "characters",
        "The largest size of the facts and wishes in the standing block that were learned, not pinned.",
        least=0,
    )
    # budgets
    block_bytes_max: int = _key(4096, "bytes", "The largest size of one block.", least=512)
    # guard
    user_bytes_max: int | None = _key(
        None, "bytes", "How many bytes of statements a space may hold about its user. none: no limit.", least=1
    )
    environment_bytes_max: int | None = _key(
        None, "bytes", "How many bytes of statements a space may hold about the environment. none: no limit.", least=1
    )
    scanning: bool = _key(
        True,
        "",
        "Redacts secrets, and quarantines untrusted texts that contain one or instruct the model. Set it to false if "
        "your host does this.",
    )
    scanners: str = _key(
        ", ".join(DEFAULT_SCANNERS),
        "names",
        "The scanners, separated by commas: built-in ones by name, your own as package.module:Scanner.",
    )
    personal_data: str = _key(
        "off",
        "",
        "`redact` removes e-mail addresses, phone numbers, bank accounts, payment cards and social security numbers; "
        "`refuse` refuses statements with them.",
        choices=PERSONAL_DATA_CHOICES,
    )
    # time
    close_timeout: float = _key(5.0, "seconds", "How long closing memory may wait for pending writes.", least=0)
    records_retention_days: float | None = _key(
        None, "days", "Recorded messages are erased after this time. none: they are kept.", least=0
    )
    # hooks of coding agents
    hook_notice: bool = _key(
        False, "", "Shows a line such as `afterturn recalled 3 memories` in coding agents that can show one."
    )
    # bounds
    index_bytes_max: int = _key(
        268435456,
        "bytes",
        "How much memory the indexes and caches of all spaces may use together.",
        least=1048576,
    )

    @property
    def scan_policy(self) -> ScanPolicy:
        """The scanners that run, and what happens to personal data."""
        names = tuple(name.strip() for name in self.scanners.split(",") if name.strip()) if self.scanning else ()
        return ScanPolicy(names, self.personal_data)

    def __post_init__(self) -> None:
        for name in KEYS:
            object.__setattr__(self, name, _checked(name, getattr(self, name), "Config"))


class Settings(TypedDict, total=False):
    """The settings as a dictionary, for `open`: the fields of Config, and the second names of some."""

    store: str | None
    spill_folder: str | None
    keys: str | None
    space: str | None
    tenant: str
    synchronous: str
    busy_timeout: float
    recall: bool
    recording: bool
    briefing: bool
    rules: bool
    consolidation: bool
    background: bool
    embedder: str
    embedder_url: str | None
    embedder_model: str | None
    embedder_key: str | None
    embedder_dimensions: int | None
    grace: float
    recall_timeout: float
    recall_entries_max: int
    recall_score_min: float
    refined: bool
    model: str | None
    model_url: str | None
    model_key: str | None
    window_tokens: int | None
    tokens_per_day_max: int | None
    recorder: str
    review_interval: int
    review_model: str | None
    review_timeout: float
    review_entries_max: int
    review_verbose: bool
    review_compaction: bool
    approval: str
    fade_days: float | None
    standing: bool
    context_files: str
    standing_bytes_max: int
    standing_chars_max: int
    block_bytes_max: int
    user_bytes_max: int | None
    environment_bytes_max: int | None
    scanning: bool
    scanners: str
    personal_data: str
    close_timeout: float
    records_retention_days: float | None
    hook_notice: bool
    index_bytes_max: int
    memory_review_interval: int
    memory_review_model: str | None
    memory_review_timeout: float
    memory_review_entries_max: int
    memory_review_verbose: bool
    memory_review_compaction: bool


KEYS = {item.name: item for item in fields(Config)}
# Other systems call these settings so. Both names are accepted in every source of settings.
ALIASES = {f"memory_{name}": name for name in KEYS if name.startswith("review_")}
# The settings that shape a block: with them it can be made again, and with others another one.
SHAPING = (
    "recall_entries_max",
    "recall_score_min",
    "block_bytes_max",
)


def load_config(
    overrides: Mapping[str, Any] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    path: Path | None = None,
) -> Config:
    """Merges the sources. Raises ConfigError, which names the setting, its value, the source, and what is allowed."""
    _check_mapping(overrides)
    environ = os.environ if environment is None else environment
    values = _from_file(str(path or _existing_file(environ)))
    values |= _from_environment(environ)
    values |= _merged([(name, name, value) for name, value in (overrides or {}).items()], "The argument")
    return Config(**values)


def _check_mapping(settings: object) -> None:
    if settings is not None and not isinstance(settings, Mapping):
        wrong = type(settings).__name__
        raise ConfigError(f'The settings are a {wrong}. Pass a dictionary, such as {{"grace": 0.2}}, or a Config.')


def config_origins(
    overrides: Mapping[str, Any] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    path: Path | None = None,
) -> dict[str, str]:
    """The source of each setting: "argument", the name of a variable, the path of the settings file or "default"."""
    environ = os.environ if environment is None else environment
    file = str(path or _existing_file(environ))
    origins = dict.fromkeys(KEYS, "default")
    origins.update(dict.fromkeys(_from_file(file), file))
    origins.update({_named(name): ENVIRONMENT_PREFIX + name.upper() for name in _variables(environ)})
    origins.update({_named(name): "argument" for name in overrides or {}})
    return origins


def unknown_variables(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Variables that start like a setting but are not one, each with a hint."""
    environ = os.environ if environment is None else environment
    known = [name.upper() for name in (*KEYS, *ALIASES, "config", "state")]
    given = sorted(name.removeprefix(ENVIRONMENT_PREFIX) for name in environ if name.startswith(ENVIRONMENT_PREFIX))
    found = {}
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = (
                f"Did you mean {ENVIRONMENT_PREFIX}{near[0]}?"
                if near
                else "`afterturn config schema` lists the settings."
            )
            found[ENVIRONMENT_PREFIX + name] = hint
    return found


def config_path(environment: Mapping[str, str] | None = None) -> Path:
    return Path(_config_file(os.environ if environment is None else environment))


def config_folder(environment: Mapping[str, str] | None = None) -> Path:
    """The folder of the settings file and of context files for all projects. AFTERTURN_CONFIG does not change it."""
    return Path(_folder(environment, "XDG_CONFIG_HOME", ".config"))


def default_store(environment: Mapping[str, str] | None = None) -> Path:
    """The store of the CLI and of `open()` if no other is configured."""
    return Path(_folder(environment, "XDG_DATA_HOME", ".local", "share"), "memory.db")


def state_folder(environment: Mapping[str, str] | None = None) -> Path:
    """The folder of what afterturn notes about this machine: projects, tokens, the helper's socket and log."""
    environ = os.environ if environment is None else environment
    named = environ.get(STATE_VARIABLE)
    return Path(named) if named else Path(_folder(environ, "XDG_STATE_HOME", ".local", "state"))


def folder_of_program(variable: str, *usual: str) -> Path:
    """The folder of another program's files: what its variable names, else the usual folder below the home folder."""
    return Path(os.path.expanduser(os.environ.get(variable) or os.path.join("~", *usual)))


def models_folder(environment: Mapping[str, str] | None = None) -> Path:
    """The folder of model files. It is in the cache folder, because the files can be downloaded again."""
    return Path(_folder(environment, "XDG_CACHE_HOME", ".cache"), "models")


def _config_file(environ: Mapping[str, str]) -> str:
    return environ.get(ENVIRONMENT_PREFIX + "CONFIG") or os.path.join(
        _folder(environ, "XDG_CONFIG_HOME", ".config"), "config.toml"
    )


def _existing_file(environ: Mapping[str, str]) -> str:
    """A file that AFTERTURN_CONFIG names must exist; the default file may be missing."""
    file = _config_file(environ)
    if environ.get(ENVIRONMENT_PREFIX + "CONFIG") and not os.path.exists(file):
        raise ConfigError(
            f"{ENVIRONMENT_PREFIX}CONFIG names {file}, which does not exist. Correct the name, or unset it."
        )
    return file


def _folder(environment: Mapping[str, str] | None, variable: str, *usual: str) -> str:
    environ = os.environ if environment is None else environment
    return os.path.join(environ.get(variable) or os.path.join(os.path.expanduser("~"), *usual), "afterturn")


def config_schema() -> dict[str, Any]:
    """The table as JSON Schema, for editors and for `afterturn config schema`."""
    properties = {name: _schema(name) for name in KEYS}
    for alias, name in ALIASES.items():
        properties[alias] = {**_schema(name), "description": f"Another name for `{name}`."}
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
    if item.metadata["most"] is not None:
        schema["maximum"] = item.metadata["most"]
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
        raise ConfigError(f"The settings file {path} cannot be read: {error}. Correct or remove it.") from error
    import tomllib

    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"The settings file {path} is not valid TOML: {error}. Correct that line.") from error
    return _merged([(name, name, value) for name, value in table.items()], path)


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    found = []
    for called in _variables(environ):
        variable = ENVIRONMENT_PREFIX + called.upper()
        found.append((called, variable, _parsed(_named(called), environ[variable])))
    return _merged(found, "")


def _merged(given: Sequence[tuple[str, str, Any]], place: str) -> dict[str, Any]:
    """Settings of one source, given as (name or alias, what the source calls it, value), checked."""
    values: dict[str, Any] = {}
    called: dict[str, str] = {}
    for alias, label, value in given:
        name = _named(alias)
        checked = _checked(name, value, place or label)
        if name in values and values[name] != checked:
            where = f" in {place}" if os.path.sep in place else ""
            raise ConfigError(
                f"{called[name]} and {label} are two names of one setting and have different values{where}. Remove one."
            )
        values[name], called[name] = checked, label
    return values


def _variables(environ: Mapping[str, str]) -> list[str]:
    """The settings and aliases that the environment sets. An empty variable counts as not set."""
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
    except (ValueError, RecursionError):
        return text


def _checked(name: str, value: Any, place: str) -> Any:
    if name not in KEYS:
        near = difflib.get_close_matches(str(name), KEYS, n=1)
        hint = f"Did you mean {near[0]!r}?" if near else "`afterturn config schema` lists them all."
        raise ConfigError(f"{place} sets {name!r}, which is not a setting. {hint}")
    types = _types_of(name)
    if float in types and isinstance(value, int) and not isinstance(value, bool):
        try:
            value = float(value)
        except OverflowError:
            raise ConfigError(f"{place} sets {name!r} to a number that is too large. Use a smaller one.") from None
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
    most = KEYS[name].metadata["most"]
    if least is not None and isinstance(value, int | float) and not least <= value < float("inf"):
        raise ConfigError(f"{place} sets {name!r} to {value!r}. It must be a number of at least {least:g}.")
    if most is not None and isinstance(value, int | float) and value > most:
        raise ConfigError(f"{place} sets {name!r} to {value!r}. It must be a number of at most {most:g}.")


_SHOWN_PARAMETERS = frozenset(
    ("schema", "directory", "host", "hostaddr", "port", "dbname", "user", "service", "sslmode", "target_session_attrs")
)
_HOST = regex(r"(\[[^\]]*\]|[^:\[\]]*)(:\d*)?")


@dataclass(frozen=True, slots=True)
class StoreUrl:
    """The URL of a store on a database server, such as postgresql://ada@db.example:5432/app?schema=memory.

    `str` and `repr` leave passwords out, and all parameters that do not say which store it is.
    """

    url: str = field(repr=False)

    def __str__(self) -> str:
        parts = urlsplit(self.url)
        user, at, host = parts.netloc.rpartition("@")
        kept = [
            (name, value)
            for name, value in parse_qsl(parts.query)
            if name in _SHOWN_PARAMETERS and "password" not in value.lower()
        ]
        query = f"?{urlencode(kept, safe='/,:')}" if kept else ""
        return f"postgresql://{re.split(':|%3a', user, flags=re.IGNORECASE)[0]}{at}{host}{parts.path}{query}"

    def __repr__(self) -> str:
        return f"<StoreUrl {self}>"

    @property
    def schema(self) -> str:
        """The schema of the database that is the store."""
        return dict(parse_qsl(urlsplit(self.url).query)).get("schema", "afterturn")

    @property
    def directory(self) -> str | None:
        """The absolute path of the file with the directory of tenants, if the URL names that instead of a store."""
        return dict(parse_qsl(urlsplit(self.url).query)).get("directory")

    @property
    def connection_url(self) -> str:
        """The URL for the database's client library, with its passwords."""
        place, _, query = self.url.partition("?")
        kept = [part for part in query.split("&") if part and not part.startswith(("schema=", "directory="))]
        return f"{place}?{'&'.join(kept)}" if kept else place


def find_store(target: object) -> Path | StoreUrl:
    """Returns the path or the URL of the store that `target` names. Raises StoreUnavailable for an unknown kind of
    URL."""
    if isinstance(target, StoreUrl):
        return target
    text = os.fspath(target) if isinstance(target, str | os.PathLike) else target
    if not isinstance(text, str) or not text or "\x00" in text:
        raise StoreUnavailable(f'{text!r} is not a path. Pass the path of a file, such as "memory.db".')
    scheme, separator, rest = text.partition("://")
    if not separator:
        if re.match(r"(sqlite|postgres|postgresql):", text):
            raise StoreUnavailable("A URL has two slashes after its scheme: postgresql://user@host/database.")
        if re.search(r"\bpassword\s*=", text):
            raise StoreUnavailable("This is not a path. Write the URL of a store as postgresql://user@host/database.")
        return _expand_home(text)
    if scheme == "sqlite" and rest.startswith("/") and rest != "/":
        return Path(rest[1:])  # sqlite:///relative and sqlite:////absolute, as in SQLAlchemy
    if scheme in ("postgresql", "postgres"):
        return _check_url(text)
    # The message does not quote the URL, which may contain a password.
    raise StoreUnavailable(
        f"This version cannot open {scheme!r} URLs. Pass a path, sqlite:///path, or postgresql://user@host/database."
    )


def _check_url(text: str) -> StoreUrl:
    try:
        url = StoreUrl(text)
        schema, directory = url.schema, url.directory
    except ValueError:
        # Without the cause, which quotes the URL.
        message = "The URL of the store cannot be read. Write postgresql://user@host:5432/database."
        raise StoreUnavailable(message) from None
    # In each of these cases it is not known where a password ends, so no part of the URL is shown.
    parts = urlsplit(text)
    if "#" in text or "@" in parts.path or parts.netloc.count("@") > 1 or "@" in parts.query.partition("/")[0]:
        raise StoreUnavailable(
            "The URL of the store has a #, or an @ that does not end the password. In names and passwords, write such "
            "characters percent-encoded (%23, %40, %2F, %3F), or leave the password out and set PGPASSWORD."
        )
    if not all(map(_HOST.fullmatch, parts.netloc.rpartition("@")[2].split(","))):
        raise StoreUnavailable(
            "The URL of the store has a port that is not a number, or a password without a host after it. Write "
            "postgresql://user@host:5432/database."
        )
    if re.search("[=@?]|://", f"{unquote(parts.path)} {dict(parse_qsl(parts.query)).get('dbname', '')}"):
        # The client library would take it for another URL.
        raise StoreUnavailable(
            "The database in the URL of the store has one of the characters =, @ and ?. Write parameters after a ?, as "
            "in postgresql://user@host:5432/database?sslmode=require."
        )
    if not re.fullmatch(r"(?!pg_)[a-z_][a-z0-9_]{0,62}", schema):
        raise StoreUnavailable(
            f"{schema!r} is not a valid schema. Use lower-case letters, digits and _, at most 63 of them, and do not "
            "begin with pg_."
        )
    if directory is not None and not directory.startswith("/"):
        raise StoreUnavailable(f"{directory!r} is not a directory of tenants. Name the absolute path of a file.")
    return url


def spill_folder(config: Config, target: Path | StoreUrl, environment: Mapping[str, str] | None = None) -> Path:
    """The folder for turns that wait because the store cannot be written: a setting, or else next to the store's file.

    For a store on a server it is below the state folder, one for each database and schema. With a directory of tenants
    there is one for each tenant, because a host has the store of its own tenant only.
    """
    if isinstance(target, Path) and config.spill_folder is None:
        return Path(f"{target}.waiting")
    store = str(target if isinstance(target, StoreUrl) else target.absolute())
    if isinstance(target, StoreUrl) and target.directory is not None:
        store = f"{store}\n{config.tenant}"
    name = hashlib.blake2b(store.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
    if config.spill_folder is not None:
        return Path(config.spill_folder).expanduser() / name
    return state_folder(environment) / "waiting" / name


def _expand_home(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise StoreUnavailable(f"{text!r} names an unknown home folder. Pass the full path.") from error
