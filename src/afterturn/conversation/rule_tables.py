"""Tables for rules about tool calls: programs that replace one another, and words for actions, places and files."""

from __future__ import annotations

FAMILIES: tuple[frozenset[str], ...] = tuple(
    frozenset(names.split())
    for names in (
        "npm yarn pnpm bun",
        "pip uv poetry pipenv conda mamba pdm rye easy_install",
        "pytest unittest nose nose2 nosetests",
        "jest vitest mocha ava jasmine",
        "cypress playwright",
        "make just rake ninja",
        "docker podman nerdctl",
        "ruff flake8 pylint pycodestyle",
        "ruff black autopep8 yapf",
        "ruff isort",
        "mypy pyright pyre ty",
        "eslint biome oxlint tslint",
        "prettier biome dprint",
        "webpack vite rollup esbuild parcel",
        "brew apt apt-get dnf yum pacman nix zypper apk snap",
        "mvn gradle gradlew mvnw sbt ant",
        "terraform tofu pulumi",
        "grep rg ag ack",
        "curl wget httpie",
        "nvm fnm volta asdf mise",
    )
)
"""Of each family, a project usually uses one."""

OTHER_PROGRAMS = frozenset(
    "git gh glab kubectl helm k9s sudo doas npx bunx aws gcloud az terragrunt ansible ansible-playbook "
    "alembic flask django rails bundle gem cargo rustup rustfmt clippy node deno tsc python ruby php "
    "composer java javac psql mysql sqlite3 mongo mongosh redis-cli chmod chown rm rmdir mv dd mkfs kill "
    "killall pkill systemctl service crontab ssh scp rsync tox nox pre-commit twine vercel netlify fly "
    "heroku serverless cdk lerna nx turbo storybook prisma knex sequelize sed awk perl tar zip openssl gpg "
    "vault svn hg jj dotnet nuget xcodebuild pod fastlane adb emulator tmux screen golangci-lint gofmt "
    "gofumpt swiftlint swiftformat ktlint shellcheck hadolint helmfile skaffold minikube kind eksctl dig".split()
)
ENGLISH = frozenset(
    "make just go black node find cat less more test time kill ant rake service screen kind flask rails "
    "bundle gem pod fly vault nose ava flow task standard watch split sort join cut head tail rest mise "
    "port dig ninja parcel vite snap".split()
)
"""Programs whose names are English words too. They count only after a word such as `use` or `with`."""

PROGRAMS = frozenset().union(*FAMILIES, OTHER_PROGRAMS)

# What a clause may say before the name of a tool.
TOOL_WORDS = frozenset(
    "use uses used using with via than of not run runs running call calling execute avoid through prefer "
    "invoke or and".split()
)

ACTIONS: dict[str, str] = {
    form: action
    for action, forms in {
        "force_push": "force_push force_pushing force_pushes",
        "push": "push pushing pushes pushed pushen pousser",
        "amend": "amend amending amends",
        "commit": "commit committing commits commiten committen einchecken",
        "merge": "merge merging merges mergen fusionner",
        "rebase": "rebase rebasing",
        "squash": "squash squashing",
        "revert": "revert reverting",
        "deploy": "deploy deploying deploys deploye deployen déployer desplegar",
        "publish": "publish publishing publishes",
        "install": "install installing installs installieren installiere installer instalar",
        "delete": "delete deleting deletes remove removing removes erase erasing löschen lösche supprimer borrar "
        "eliminar",
        "drop": "drop dropping drops truncate truncating",
        "downgrade": "downgrade downgrading",
        "restart": "restart restarting reboot rebooting",
        "edit": "edit editing edits modify modifying change changing changes touch touching alter altering write "
        "writing update updating overwrite overwriting rewrite rewriting bearbeiten bearbeite ändern ändere modifier "
        "editar modificar cambiar tocar anfassen",
        "read": "read reading print printing show showing open opening lesen lire leer",
        "fetch": "fetch fetching visit visiting browse browsing cite citing scrape scraping download downloading",
        "post": "post posting send sending message messaging",
        "create": "create creating cut cutting make add adding open opening",
        "close": "close closing resolve resolving",
        "pipe": "pipe piping",
        "run": "run running runs use using uses call calling execute executing invoke invoking start starting do "
        "benutzen benutze verwenden verwende nutzen nutze ausführen utiliser utilise usar usa usamos",
    }.items()
    for form in forms.split()
}
SPECIFIC = frozenset(
    "force_push push amend commit merge rebase squash deploy publish delete downgrade revert install".split()
)
"""Actions that make a trigger by themselves. Any other needs an object."""

NEVER = frozenset(
    "never don't dont cannot can't mustn't shouldn't avoid stop forbid nie niemals jamais nunca nicht mai "
    "nooit aldrig".split()
)
INSTEAD = (
    "instead of",
    "rather than",
    "in place of",
    "anstatt",
    "anstelle von",
    "statt",
    "au lieu de",
    "en vez de",
    "en lugar de",
)
PRESCRIBING = frozenset(
    "use uses using prefer prefers always must should only never don't dont avoid ensure keep shall need needs are is "
    "we benutze verwende nutze utilise usa usamos immer toujours siempre".split()
)

PLACES = frozenset("main master trunk develop".split())
ENVIRONMENTS = {"prod": "production", "production": "production", "staging": "staging", "live": "production"}
RESOURCES = {
    form: noun
    for noun, forms in {
        "pull_request": "pull_request pull_requests pr prs merge_request merge_requests",
        "tag": "tag tags",
        "branch": "branch branches",
        "issue": "issue issues ticket tickets",
        "table": "table tables",
        "database": "database databases db",
        "cluster": "cluster clusters",
        "pod": "pod pods",
        "channel": "channel channels",
        "message": "message messages",
        "release": "release releases",
        "email": "email emails e-mail e-mails mail mails",
    }.items()
    for form in forms.split()
}
SERVICES = frozenset(
    "slack jira github gitlab linear notion confluence sentry stripe gmail discord telegram figma datadog "
    "pagerduty trello asana bitbucket zendesk hubspot salesforce postgres mongodb redis supabase "
    "cloudflare vercel".split()
)
RESOURCE_PROGRAMS = {
    "database": frozenset(
        "psql mysql mariadb sqlite3 mongo mongosh redis-cli pg_dump pg_restore createdb dropdb".split()
    ),
    "cluster": frozenset("kubectl helm k9s helmfile kustomize oc".split()),
    "github": frozenset(("gh",)),
    "gitlab": frozenset(("glab",)),
    "postgres": frozenset("psql pg_dump pg_restore".split()),
    "redis": frozenset(("redis-cli",)),
    "mongodb": frozenset("mongo mongosh".split()),
}
RESOURCE_WORDS = {
    "database": frozenset("db database postgres mysql sql sqlite mongodb supabase".split()),
    "cluster": frozenset("k8s kubernetes cluster kube".split()),
}

LANGUAGES: dict[str, tuple[str, ...]] = {
    "python": (".py", ".pyi"),
    "typescript": (".ts", ".tsx"),
    "javascript": (".js", ".jsx", ".mjs", ".cjs"),
    "rust": (".rs",),
    "golang": (".go",),
    "go": (".go",),
    "java": (".java",),
    "kotlin": (".kt", ".kts"),
    "swift": (".swift",),
    "ruby": (".rb",),
    "php": (".php",),
    "c++": (".cpp", ".cc", ".hpp", ".h"),
    "c#": (".cs",),
    "sql": (".sql",),
    "css": (".css", ".scss"),
    "html": (".html", ".htm"),
    "markdown": (".md",),
    "yaml": (".yml", ".yaml"),
    "terraform": (".tf",),
}
CODE_NOUNS = frozenset(
    "code files functions methods classes tests modules imports errors types variables names naming scripts components "
    "style docstrings comments keywords queries interfaces exceptions structs".split()
)
CHAT_WORDS = frozenset("answer answers explain reply replies respond example examples tell".split())

TEST_COMMANDS: tuple[tuple[str, ...], ...] = (
    ("pytest",),
    ("unittest",),
    ("jest",),
    ("vitest",),
    ("mocha",),
    ("tox",),
    ("nox",),
    ("go", "test"),
    ("cargo", "test"),
    ("npm", "test"),
    ("yarn", "test"),
    ("pnpm", "test"),
)
RUNNERS = frozenset("make just rake tox nox npm pnpm yarn bun".split())
"""Programs that run a project's tests through a script of its own."""
TASKS = frozenset("test tests build lint check run install format".split())
ASKING = frozenset("list ls view show info search why outdated freeze help version".split())
"""Subcommands of package managers that only look."""
EXTENSIONS = frozenset(
    "json lock toml yaml yml py js ts tsx jsx go rs rb php java kt md txt sql sh css html env ini cfg xml "
    "proto csv ipynb tf gradle lockb sum mod cs cpp h c vue svelte snap".split()
)
