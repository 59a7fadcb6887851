"""What deploy/ says, as `make test-deploy` reads it. That target also runs it."""

import os
import re
import tomllib
from pathlib import Path

import click
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from afterturn.hosts.cli.app import app
from lab.deploy.recipe import DEPLOY, read_compose, read_stages, read_unit

DOCKERFILE = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")


def test_the_last_stage_has_no_compiler_and_no_root():
    first, last = read_stages(DOCKERFILE)
    assert [rest for rest in last.find("RUN") if re.search(r"\b(pip|apt|apt-get|gcc)\b", rest)] == []
    assert last.find("USER") == ["10001"]
    assert last.find("COPY") == ["--from=build /usr/local/lib/afterturn /usr/local/lib/afterturn"]
    assert len(first.find("RUN")) == 2


def test_the_commands_are_those_of_the_command_line():
    """With an option that does not exist, none of them would start."""
    _, last = read_stages(DOCKERFILE)
    services = read_compose()
    unit = read_unit((DEPLOY / "afterturn.service").read_text(encoding="utf-8"))
    commands = [
        last.words("CMD"),
        services["server"]["command"],
        services["worker"]["command"],
        unit["ExecStart"][0].split()[1:],
    ]
    for name, *arguments in commands:
        command = app.get_command(click.Context(app), name)
        assert command is not None
        assert command.make_context(name, list(arguments)).command is command
    variables = {**last.environment(), **services["server"]["environment"]}
    variables |= dict(one.split("=", 1) for one in unit["Environment"])
    assert {name for name in variables if name.startswith("AFTERTURN_")} == {
        "AFTERTURN_BACKGROUND",
        "AFTERTURN_STATE",
        "AFTERTURN_STORE",
    }


def test_every_service_is_checked_and_holds_no_password():
    services = read_compose()
    checked = {name for name, service in services.items() if "healthcheck" in service}
    _, last = read_stages(DOCKERFILE)
    assert {"server"} | checked == set(services)
    assert "/readyz" in last.words("HEALTHCHECK")[2]
    assert all(service["read_only"] for service in services.values())
    variables = [f"{name}={value}" for service in services.values() for name, value in service["environment"].items()]
    assert [one for one in variables if "PASSWORD" in one and "_FILE=/run/secrets/" not in one] == []


def test_the_script_for_the_database_can_be_executed():
    """The image of PostgreSQL would read it into its own shell otherwise, where `set -u` breaks what follows."""
    assert os.access(DEPLOY / "database.sh", os.X_OK)


def test_the_image_has_what_the_extras_ask_for():
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"]]
    for extra in ("server", "postgres", "keys"):
        wanted += project["optional-dependencies"][extra]
    pins = dict(re.findall(r"(?m)^([\w.-]+)==([\w.]+)", (DEPLOY / "requirements.txt").read_text(encoding="utf-8")))
    unmet = [
        str(one)
        for one in map(Requirement, wanted)
        if not one.specifier.contains(pins.get(canonicalize_name(one.name), "0"), prereleases=True)
    ]
    assert unmet == [], "Run `make lock-deploy`."


def test_what_the_dockerfile_copies_is_sent_to_the_build():
    """The list of what is ignored leaves out everything else."""
    first, _ = read_stages(DOCKERFILE)
    copied = {name for rest in first.find("COPY") for name in rest.split()[:-1]}
    sent = {
        line.removeprefix("!")
        for line in Path(DEPLOY, "Dockerfile.dockerignore").read_text().splitlines()
        if "!" in line
    }
    assert copied == sent
    assert [name for name in copied if not (DEPLOY.parent / name).exists()] == []


def test_an_instruction_before_the_first_stage_is_refused():
    with pytest.raises(ValueError, match="before the first FROM"):
        read_stages("RUN true\nFROM base\n")
    (stage,) = read_stages("# a\nARG BASE\nFROM base\nRUN one \\\n    # why\n    && two\nENV A=1 \\\n  B='2 3'\n")
    assert stage.find("RUN") == ["one && two"]
    assert stage.environment() == {"A": "1", "B": "2 3"}
    with pytest.raises(ValueError, match="has no CMD"):
        stage.words("CMD")
