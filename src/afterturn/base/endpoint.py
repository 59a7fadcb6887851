"""Where a server is asked: the URL that calls go to, and the header that its key goes into. Checked before any call."""

from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit, urlunsplit

from afterturn.base.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Service:
    """What a server is to us: its name in messages, the end of its URL, and the settings that say where and as whom."""

    name: str
    path: str
    url: str
    key: str
    model: str
    timeout: str
    answer_bytes_max: int


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`url` is what is called; `shown` is what people are told of it, without a query, where a secret may stand."""

    url: str
    shown: str


def make_endpoint(service: Service, url: str) -> Endpoint:
    """Of a base URL such as http://localhost:8080/v1, or of the whole one. ConfigError says what is wrong with it."""
    parts = _split(service, url.strip())
    path = parts.path.rstrip("/")
    base = path.removesuffix(service.path)
    return Endpoint(
        url=urlunsplit((parts.scheme, parts.netloc, base + service.path, parts.query, "")),
        shown=urlunsplit((parts.scheme, parts.netloc, base, "", "")),
    )


def bearer(service: Service, key: str | None) -> dict[str, str]:
    """The header for `key`, none for a blank one. ConfigError, without the key in it, when no header can hold it."""
    secret = (key or "").strip()
    if not secret:
        return {}
    if not (secret.isascii() and secret.isprintable()):
        raise ConfigError(f"{service.key} has characters that no HTTP header can hold. Copy the key anew.")
    return {"Authorization": f"Bearer {secret}"}


def check_server(service: Service, url: str, key: str | None) -> None:
    """ConfigError when it could not be asked."""
    make_endpoint(service, url)
    bearer(service, key)


def _split(service: Service, url: str) -> SplitResult:
    # First: whatever is said about another fault would show it.
    if "@" in url.partition("?")[0]:
        raise ConfigError(f"{service.url} has a name or password in it. Set {service.key} instead.")
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise _no_address(service, url) from None
    if not is_address or " " in url or not url.isprintable():
        raise _no_address(service, url)
    return parts


def _no_address(service: Service, url: str) -> ConfigError:
    shown = url.partition("?")[0]
    return ConfigError(
        f"{service.url} is {shown!r}, which is no http or https address. Write it like http://localhost:8080/v1."
    )
