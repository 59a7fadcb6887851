"""Secrets behind the names of variables, headers, options, parameters and fields, and what only looks like one."""

import random
import string
from collections.abc import Sequence
from urllib.parse import quote

import pytest

from afterturn.scanners.secrets import SecretScanner, redact

# "{}" is the value. Each form is tried with values of several shapes.
FORMS = (
    # environment and shell
    "SECRET={}",
    "export SECRET={}",
    "SECRET='{}'",
    "APP_SECRET={}",
    "JWT_SECRET={}",
    "SESSION_SECRET={}",
    "CLIENT_SECRET={}",
    "AWS_SECRET_ACCESS_KEY={}",
    "SECRET_KEY={}",
    "DJANGO_SECRET_KEY='{}'",
    "STRIPE_API_KEY={}",
    "API_TOKEN={}",
    "GITEA_TOKEN={}",
    "setx API_KEY {}",
    "$env:CLIENT_SECRET = '{}'",
    "ENV DB_PASSWORD={}",
    "docker run -e APP_SECRET={} app",
    # YAML, TOML, INI, properties
    "secret: {}",
    "client_secret: {}",
    "clientSecret: '{}'",
    "client-secret: {}",
    'secretKey: "{}"',
    'api_key = "{}"',
    'secret_access_key = "{}"',
    "aws_secret_access_key = {}",
    "auth_token: {}",
    "access_token: {}",
    "private_token = {}",
    "spring.security.oauth2.client-secret={}",
    "app.secret={}",
    "encryption_key: {}",
    "db.password = {}",
    # JSON
    '{{"secret": "{}"}}',
    '{{"client_secret": "{}", "n": 1}}',
    '{{"apiKey": "{}"}}',
    '{{"accessToken":"{}"}}',
    '{{\\"client_secret\\": \\"{}\\"}}',
    '{{"SecretAccessKey": "{}"}}',
    '{{"password": "{}"}}',
    # headers
    "x-api-key: {}",
    "X-API-Key: {}",
    'curl -H "X-Api-Key: {}" https://api.example.org',
    "X-Auth-Token: {}",
    "Private-Token: {}",
    "X-Vault-Token: {}",
    "Api-Token: {}",
    # options and parameters
    "--client-secret {}",
    "--client-secret={}",
    "--secret {}",
    "--secret={}",
    "--api-key {}",
    "--auth-token={}",
    "--token '{}'",
    "https://example.org/cb?client_secret={}&state=1",
    "https://example.org/v1?api_key={}",
    "grant_type=client_credentials&client_id=web&client_secret={}",
    "?access_token={}&x=1",
    "client_secret%3D{}",
    # code
    'const clientSecret = "{}";',
    "secret := '{}'",
    "API_SECRET => '{}'",
    'os.environ["CLIENT_SECRET"] = "{}"',
    "apiKey: '{}',",
    # sentences
    "The password is {}",
    "the client secret is: {}",
    "Das Passwort lautet {}",
    "Mi contraseña es {}",
    "密码是{}",
)
ORDINARY = (
    "SECRET_SANTA=Anna",
    "SECRET_SANTA_2024=Annabelle7",
    "the secret is to stir slowly",
    "The secret: patience, and 2 cups of flour",
    "Our secret: start early2day, rest often",
    "client_secret=<your-secret>",
    "client_secret=${CLIENT_SECRET}",
    "client_secret=$CLIENT_SECRET1",
    "client_secret={{ vault_secret_1 }}",
    "client_secret=xxxxxxxx1234",
    "client_secret=YOUR_CLIENT_SECRET_1",
    "client_secret=changeme123",
    "client_secret: [redacted: secret]",
    "client_secret=********1234",
    "client_secret=...",
    "client_secret: null",
    "client_secret: required since 2.0",
    "AWS_SECRET_ACCESS_KEY=",
    "AWS_SECRET_ACCESS_KEY=$(pass show aws)",
    "AWS_SECRET_ACCESS_KEY: ${{ secrets.AWS_SECRET_ACCESS_KEY }}",
    "x-api-key: <key>",
    "x-api-key: $API_KEY",
    "x-api-key header is required since v2024",
    "max_tokens=4096",
    "max_tokens: 8192",
    "token_count: 12",
    "token_limit=128000",
    "tokens: 1024/4096",
    "token: string",
    "token: ERC721",
    "token_type: Bearer",
    "token_url=https://example.org/oauth2/token",
    "next_token=Page2Abc9",
    "csrf_token=Abc12345x",
    "pageToken=Xy12Zz34",
    "token = tokens[0]",
    "token = parser.next1()",
    "token = self.token2",
    "secret = os.environ['SECRET1']",
    "secret = get_secret('db-1')",
    "secret = config.secret2",
    "api_key = settings.API_KEY2",
    "apiKey: process.env.API_KEY_V2",
    "api_key=None",
    "api_key=example1",
    "secretName: db-credentials-2024",
    "secretRef: prod-eu1-db2",
    "secret: prod-eu1-db2-rack03",
    "secret: my-app-secret-v2",
    "secret: projects/web1/secrets/db2",
    "secret: arn:aws:secretsmanager:eu-west-1:1",
    "SECRET_NAME=prod2024db",
    "SECRET_FILE=/run/secrets/db2",
    "SECRET=/run/secrets/db_2",
    "--secret id=npmrc1,src=.npmrc",
    "--secret my-db-2024",
    "--token-file ./token2.txt",
    "--api-key-env API_KEY2",
    "commit 9fceb02d0ae598e95dc970b74767f19372d61af8",
    "request id: 550e8400-e29b-41d4-a716-446655440000",
    "trace_id=4bf92f3577b34da6a3ce929d0e0e4736",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "the token bucket holds 100 tokens, refilled at 10 per second",
    "secretary: Bob1234Xy",
    "primary key: UserId42x",
    'publicKeyToken="1fc8b3b9a1e18e3b"',
    "/usr/share/keyrings/docker-archive2.gpg",
    "Read docs/secrets-2024.md, then client_secret.md",
    "key=value1",
    "https://example.org/a%20b%2Fc?q=secret%20garden%201911",
    "100%25 of the tokens, 50%20off",
    "SERIAL: SN-2024-ABCDEFGHIJKLMNOP-0042",
    "PART HF_HOUSING_30X40X12_REV2 AND GSK_2024",
    "MAX_TOKENS_PER_REQUEST_2024=8192",
)


def values(form: str) -> Sequence[str]:
    draw = random.Random(form)
    letters = string.ascii_letters + string.digits

    def drawn(length: int, alphabet: str = letters) -> str:
        middle = "".join(draw.choice(alphabet) for _ in range(length - 4))
        return "q7" + middle + "Z4" if alphabet == letters else "q7b1" + middle

    return (
        drawn(40),
        drawn(12),
        "-".join((drawn(5), drawn(5), drawn(5))),
        "Kp" + "".join(draw.sample(string.digits, 4)) + "!vR" + draw.choice("xyz"),
        "".join(draw.choice("0123456789abcdef") for _ in range(28)) + "9f3a7c1e",
    )


@pytest.mark.parametrize("form", FORMS)
def test_a_value_behind_a_name_is_redacted(form: str) -> None:
    """G1: a long key, a short one, one with dashes, a password with a sign, a hexadecimal number."""
    for value in values(form):
        written = form.format(value)
        shown = redact(written)
        assert shown.kinds, written
        assert value not in shown.text
        assert value[:6] not in shown.text


@pytest.mark.parametrize("text", ORDINARY)
def test_what_only_looks_like_a_labelled_secret_stays(text: str) -> None:
    """G1: placeholders, counts, references, names, paths and ids."""
    assert redact(text).text == text


KEYS = {
    "github": "ghp_4kLmQ7vTz2RbWn8Yc1XsD5fGh9JpA3uEoI6t",
    "anthropic": "sk-ant-api03-Zk3v9QmX7LbR2tYwP8sD4fGh6JnA1uEoI5cV0xB-qT_7zHkM2rWyN9eU4iO3pL8aS6dF1gJ5",
    "stripe": "sk_live_51Hq7ZkLmQ9vTz2RbWn8YcXs",
    "slack": "xoxb-293847561029-8374650192837-aB3dE5fG7hJ9kL1mN3pQ5rS7",
    "gitlab": "glpat-Zk3v9QmX7LbR2tYwP8sD",
    "hugging face": "hf_ZkvQmXLbRtYwPsDfGhJnAuEoIcVxBqTz4H7k"[:37],
    "google": "AIzaSyD4k7QmXLbR2tYwP8sDfGh6JnA1uEoI5cV",
    "sendgrid": "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",
    "url": "postgresql://ada:Zk3v9QmX7@db.example.org/app",
}


@pytest.mark.parametrize("name", [name for name in KEYS if name != "url"])
@pytest.mark.parametrize("form", ["{}", "KEY {} ON THE BOX", "It says {}."])
def test_a_key_in_capitals_is_redacted(name: str, form: str) -> None:
    """G1: as labels, forms and loud people write it."""
    text = form.format(KEYS[name].upper())
    assert KEYS[name].upper()[8:] not in redact(text).text


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("how", ["signs", "every third", "all"])
def test_a_percent_encoded_key_is_redacted(name: str, times: int, how: str) -> None:
    """G1: in part or as a whole, and encoded twice. What is around it stays."""
    key = KEYS[name]
    if how == "signs":
        encoded = "".join(letter if letter.isalnum() else f"%{ord(letter):02X}" for letter in key)
    else:
        step = 3 if how == "every third" else 1
        encoded = "".join(f"%{ord(letter):02x}" if at % step == 0 else letter for at, letter in enumerate(key))
    if times == 2:
        encoded = quote(encoded, safe="")
    secret = "Zk3v9QmX7" if name == "url" else key
    shown = redact(f"see https://example.org/?next={encoded} today").text
    assert shown.startswith("see https://example.org/?next=")
    assert shown.endswith(" today")
    assert "[redacted: " in shown
    for position in range(0, len(secret) - 8, 4):
        assert secret[position : position + 8] not in shown
    assert len(shown) < len("see https://example.org/?next= today") + len(encoded) - len(secret) + 40


@pytest.mark.parametrize("unit", ["%25", "%41", "SECRET=", "SECRET=%53", "client_secret: Aa1-", "--secret ", "GHP_A1"])
def test_long_texts_of_labels_and_escapes_take_bounded_time(unit: str) -> None:
    """G5: half a megabyte; a test that hangs fails. A secret at the end is found all the same."""
    text = f"{unit * (500_000 // len(unit))}\nthe password is {KEYS['github']}"
    assert KEYS["github"] in text[SecretScanner().find(text)[-1].start :]
