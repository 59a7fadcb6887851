"""All settings in one frozen table: type, unit, default and description. The environment is read here only."""

import functools
import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, get_args
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from afterturn.errors import ConfigError, StoreUnavailable
from afterturn.scanners.detection import DEFAULT_SCANNERS, ScanPolicy
from afterturn.text import regex

ENVIRONMENT_PREFIX = "AFTERTURN_"
STATE_VARIABLE = ENVIRONMENT_PREFIX + "STATE"
# The unit of a value that is never shown in a `repr`, an error or a listing.
SECRET = "secret"


class Description(NamedTuple):
    """A setting's entry in `config.json`. A value is one of `choices`, if it has some, between `least` and `most`."""

    unit: str
    reason: str
    choices: Sequence[bool | str] = ()
    least: float | None = None
    most: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The settings. An argument overrides the environment (`AFTERTURN_GRACE`), which overrides the file
    `~/.config/afterturn/config.toml`, which overrides the default."""

    # where
    store: str | None = field(default=None, repr=False)  # it may contain a password
    spill_folder: str | None = None
    keys: str | None = None
    space: str | None = None
    tenant: str = "default"
    synchronous: str = "full"
    busy_timeout: float = 5.0
    # switches
    recall: bool = True
    recording: bool = True
    briefing: bool = True
    rules: bool = True
    consolidation: bool = False
    background: bool = True
    # embedder
    embedder: str = "static"
    embedder_url: str | None = None
    embedder_model: str | None = None
    embedder_key: str | None = field(default=None, repr=False)
    # recall
    grace: float = 0.2
    recall_timeout: float = 5.0
    recall_entries_max: int = 16
    recall_score_min: float = 0.22
    refined: bool | str = False
    # model
    model: str | None = None
    model_url: str | None = None
    model_key: str | None = field(default=None, repr=False)
    window_tokens: int | None = None
    tokens_per_day_max: int | None = None
    # learning
    recorder: str = "verbatim"
    review_interval: int = 0
    review_model: str | None = None
    review_timeout: float = 30.0
    review_entries_max: int = 5
    review_verbose: bool = False
    review_compaction: bool = False
    approval: str = "off"
    fade_days: float | None = None
    # standing context
    standing: bool = True
    context_files: str = "AGENTS.md,MEMORY.md"
    standing_bytes_max: int = 32768
    standing_chars_max: int = 2560
    # budgets
    block_bytes_max: int = 4096
    # guard
    user_bytes_max: int | None = None
    environment_bytes_max: int | None = None
    scanners: str = ", ".join(DEFAULT_SCANNERS)
    personal_data: str = "off"
    # time
    close_timeout: float = 5.0
    records_retention_days: float | None = None
    # hooks of coding agents
    hook_notice: bool = False
    # bounds
    index_bytes_max: int = 268435456

    @property
    def scan_policy(self) -> ScanPolicy:
        """The scanners that run, and what happens to personal data."""
        return _read_policy(self.scanners, self.personal_data)

    def __post_init__(self) -> None:
        for name in KEYS:
            object.__setattr__(self, name, _checked(name, getattr(self, name), "Config"))


@functools.cache
def _read_policy(scanners: str, personal_data: str) -> ScanPolicy:
    names = tuple(name.strip() for name in scanners.split(",") if name.strip() not in ("", "none"))
    return ScanPolicy(names, personal_data)


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
    grace: float
    recall_timeout: float
    recall_entries_max: int
    recall_score_min: float
    refined: bool | str
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
_TABLE = json.loads(Path(__file__).with_suffix(".json").read_bytes())
DESCRIPTIONS = {name: Description(**_TABLE[name]) for name in KEYS}
# Other systems call these settings so. Both names are accepted in every source of settings.
ALIASES = {f"memory_{name}": name for name in KEYS if name.startswith("review_")}
# The settings that shape a block: with them it can be made again, and with others another one.
SHAPING = ("recall_entries_max", "recall_score_min", "block_bytes_max")


def load_config(
    overrides: Mapping[str, Any] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    path: Path | None = None,
) -> Config:
    """Merges the sources. Raises ConfigError, which names the setting, its value, the source, and what is allowed."""
    wanted: object = overrides
    if wanted is not None and not isinstance(wanted, Mapping):
        wrong = type(wanted).__name__
        raise ConfigError(f'The settings are a {wrong}. Pass a dictionary, such as {{"grace": 0.2}}, or a Config.')
    environ = os.environ if environment is None else environment
    values = _from_file(str(path or _existing_file(environ)))
    variables = {name: ENVIRONMENT_PREFIX + name.upper() for name in _variables(environ)}
    given = [
        (name, variable, _parsed(ALIASES.get(name, name), environ[variable])) for name, variable in variables.items()
    ]
    values |= _merged(given, "")
    values |= _merged([(name, name, value) for name, value in (overrides or {}).items()], "The argument")
    return Config(**values)


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
    origins.update({ALIASES.get(name, name): ENVIRONMENT_PREFIX + name.upper() for name in _variables(environ)})
    origins.update({ALIASES.get(name, name): "argument" for name in overrides or {}})
    return origins


_warned_of: set[str] = set()


def unknown_variables(environment: Mapping[str, str] | None = None, *, new: bool = False) -> dict[str, str]:
    """Variables that start like a setting but are not one, each with a hint. `new`: those that this process has not
    asked for in this way before, for warnings."""
    environ = os.environ if environment is None else environment
    # The documentation lets users keep the token of an MCP server in AFTERTURN_TOKEN.
    known = [name.upper() for name in (*KEYS, *ALIASES, "config", "state", "token")]
    given = sorted(name.removeprefix(ENVIRONMENT_PREFIX) for name in environ if name.startswith(ENVIRONMENT_PREFIX))
    found = {}
    for name in given:
        if name not in known and not (new and name in _warned_of):
            from difflib import get_close_matches

            near = [ENVIRONMENT_PREFIX + one for one in get_close_matches(name, known, n=1)]
            hint = f"Did you mean {near[0]}?" if near else "`afterturn config schema` lists the settings."
            found[ENVIRONMENT_PREFIX + name] = hint
            _warned_of.update([name] if new else [])
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
    about = DESCRIPTIONS[name]
    types = [_JSON_TYPES[kind] for kind in _types_of(name)]
    limits = {"enum": about.choices or None, "minimum": about.least, "maximum": about.most}
    return {
        "type": types[0] if len(types) == 1 else types,
        "default": KEYS[name].default,
        "description": about.reason + (f" Unit: {about.unit}." if about.unit else ""),
        **{keyword: limit for keyword, limit in limits.items() if limit is not None},
    }


def without_secret(name: str, value: Any) -> Any:
    """A setting's value as it may be shown."""
    return "***" if value and DESCRIPTIONS[name].unit == SECRET else value


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


def _merged(given: Sequence[tuple[str, str, Any]], place: str) -> dict[str, Any]:
    """Settings of one source, given as (name or alias, what the source calls it, value), checked."""
    values: dict[str, Any] = {}
    called: dict[str, str] = {}
    for alias, label, value in given:
        name = ALIASES.get(alias, alias)
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


def _parsed(name: str, text: str) -> Any:
    if str in _types_of(name) and bool not in _types_of(name):
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
        from difflib import get_close_matches

        near = get_close_matches(str(name), KEYS, n=1)
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
    about = DESCRIPTIONS[name]
    wanted = ""
    if about.choices and value not in about.choices:
        wanted = f"one of: {', '.join(str(choice).lower() for choice in about.choices)}"
    if isinstance(value, int | float) and about.least is not None and not about.least <= value < float("inf"):
        wanted = f"a number of at least {about.least:g}"
    if isinstance(value, int | float) and about.most is not None and value > about.most:
        wanted = f"a number of at most {about.most:g}"
    if wanted:
        raise ConfigError(f"{place} sets {name!r} to {value!r}. It must be {wanted}.")


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
        if os.name != "nt" and re.match(r"[A-Za-z]:/|.*\\", text) and not Path(text).exists():
            path = re.sub(r"^([A-Za-z]):/", lambda drive: f"/mnt/{drive[1].lower()}/", text.replace("\\", "/"))
            raise StoreUnavailable(f"{text} is a path of Windows, and this is another system. In WSL, write {path}.")
        if re.match(r"(sqlite|postgres|postgresql):", text):
            raise StoreUnavailable("A URL has two slashes after its scheme: postgresql://user@host/database.")
        if re.search(r"\bpassword\s*=", text):
            raise StoreUnavailable("This is not a path. Write the URL of a store as postgresql://user@host/database.")
        try:
            return Path(text).expanduser()
        except RuntimeError as error:
            raise StoreUnavailable(f"{text!r} names an unknown home folder. Pass the full path.") from error
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
