"""Where a model is asked: the URL that calls go to, and the header that its key goes into. Checked before any call."""

from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit, urlunsplit

from afterturn.base.errors import ConfigError

_PATH = "/chat/completions"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`url` is what is called; `shown` is what people are told of it, without a query, where a secret may stand."""

    url: str
    shown: str


def make_endpoint(url: str) -> Endpoint:
    """Of a base URL such as http://localhost:8080/v1, or of the whole one. ConfigError says what is wrong with it."""
    parts = _split(url.strip())
    path = parts.path.rstrip("/")
    base = path.removesuffix(_PATH)
    return Endpoint(
        url=urlunsplit((parts.scheme, parts.netloc, base + _PATH, parts.query, "")),
        shown=urlunsplit((parts.scheme, parts.netloc, base, "", "")),
    )


def bearer(key: str | None) -> dict[str, str]:
    """The header for `key`, none for a blank one. ConfigError, without the key in it, when no header can hold it."""
    secret = (key or "").strip()
    if not secret:
        return {}
    if not (secret.isascii() and secret.isprintable()):
        raise ConfigError("model_key has characters that no HTTP header can hold. Copy the key anew.")
    return {"Authorization": f"Bearer {secret}"}


def _split(url: str) -> SplitResult:
    # First: whatever is said about another fault would show it.
    if "@" in url.partition("?")[0]:
        raise ConfigError("model_url has a name or password in it. Set model_key instead.")
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise _no_address(url) from None
    if not is_address or " " in url or not url.isprintable():
        raise _no_address(url)
    return parts


def _no_address(url: str) -> ConfigError:
    shown = url.partition("?")[0]
    return ConfigError(
        f"model_url is {shown!r}, which is no http or https address. Write it like http://localhost:8080/v1."
    )
