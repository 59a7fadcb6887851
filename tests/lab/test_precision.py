"""Cases with beliefs: each reads the spaces of its scopes, and its changes are visible to the next."""

import json
from pathlib import Path
from typing import Any

import pytest

from afterturn.config import Config
from afterturn.errors import InvalidFile
from afterturn.evaluation.examination import open_subject
from lab.precision import Belief, Case, Precision, comparable, judge, read_cases, summary


def belief(name: str, content: str, **fields: Any) -> dict[str, Any]:
    return {
        "_id": name,
        "user_id": "test-user",
        "scope": ["domain:code"],
        "canonical_name": name,
        "content": content,
        "aliases": [],
        "pinned": False,
        "epistemic_status": "active",
        "resolved_at": None,
        "created_at": "2026-09-01T00:00:00Z",
        **fields,
    }


BELIEFS = [
    belief("kubernetes", "Deploys to a cluster with Helm charts.", aliases=["k8s"]),
    belief("fastify", "Uses Fastify for HTTP services."),
    belief("redis", "A pianist in the novel.", scope=["domain:writing"]),
    belief("tslint", "Previously used TSLint.", epistemic_status="superseded"),
    belief("hosting", "Was evaluating bare metal.", resolved_at="2026-09-02T00:00:00Z"),
    belief("other", "Writes Haskell only.", user_id="other-user"),
]


def case(name: str, query: str, only: list[str], **fields: Any) -> dict[str, Any]:
    expected = {"relevantBeliefs": {"shouldOnlyInclude": only}}
    return {"caseId": name, "scope": ["domain:code"], "query": query, "expect": expected, **fields}


CASES = [
    case("by alias", "what about k8s?", ["kubernetes"]),
    case("another scope", "pianist?", []),
    case("that scope", "pianist?", ["redis"], scope=["domain:writing"]),
    case("superseded", "TSLint?", []),
    case("resolved", "bare metal?", []),
    case("another user", "Haskell?", []),
    case("nobody", "k8s?", [], userId="brand-new"),
    case("too small a budget", "k8s?", [], budget={"maxBeliefs": 1}),
]
SESSION = {
    "caseId": "session",
    "turns": [
        {
            "turnIndex": 0,
            "scope": ["domain:code"],
            "userMessage": "thanks",
            "expect": {"relevantBeliefs": {"shouldOnlyInclude": []}},
            "createBeliefAtTurn": belief("vitest", "Uses Vitest for all testing."),
            "updateBeliefAtTurn": {"beliefId": "fastify", "addAliases": ["zebra"]},
        },
        {
            "turnIndex": 1,
            "scope": ["domain:code"],
            "userMessage": "what does zebra position for, and Vitest?",
            "expect": {"relevantBeliefs": {"shouldOnlyInclude": ["fastify", "vitest"]}},
        },
    ],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cases")
    (folder / "beliefs.seed.json").write_text(json.dumps(BELIEFS), encoding="utf-8")
    (folder / "retrieval.cases.json").write_text(json.dumps(CASES), encoding="utf-8")
    (folder / "session-retrieval.cases.json").write_text(json.dumps([SESSION]), encoding="utf-8")
    return folder


def test_cases_that_need_a_smaller_budget_are_left_out(folder: Path):
    chosen = comparable(read_cases(folder).cases, Config(recall_entries_max=8))
    assert [each.id for each in chosen] == [
        *(each["caseId"] for each in CASES[:-1]),
        "session 0",
        "session 1",
    ]


def test_beliefs_of_other_scopes_and_users_and_deleted_ones_are_never_recalled(folder: Path):
    """L2, L7: neither another space nor what was superseded reaches a block."""
    collection = read_cases(folder)
    with open_subject() as subject:
        figures = Precision(subject, collection).examine()["afterturn"]
    assert figures == {"n": 9, "must_include": 1.0, "precision": 1.0, "cases_right": 1.0, "silence": 1.0}


@pytest.mark.parametrize("content", ["[]", "{", '[{"_id": 1}]', json.dumps([belief("a", "b", scope=[])])])
def test_a_folder_without_beliefs_is_refused_with_its_path(tmp_path: Path, content: str):
    (tmp_path / "beliefs.seed.json").write_text(content, encoding="utf-8")
    with pytest.raises(InvalidFile, match=tmp_path.name):
        read_cases(tmp_path)


def judged_belief(name: str, *, pinned: bool = False) -> Belief:
    return Belief(name, "ada", "domain:code", name, "content", (), pinned=pinned, gone=False, at=0.0)


JUDGED = {name: judged_belief(name, pinned=name == "pinned") for name in ("a", "b", "pinned")}


@pytest.mark.parametrize(
    "found,right,precision",
    [(["a"], 1, 1), (["a", "pinned"], 1, 1), (["a", "b"], 0, 0.5), ([], 0, 1), (["b"], 0, 0)],
)
def test_a_case_is_right_when_all_that_belongs_and_nothing_else_is_there(
    found: list[str], right: float, precision: float
):
    case = Case("c", "ada", ("domain:code",), "?", frozenset("a"), frozenset())
    figures = summary([judge(case, found, JUDGED)])
    assert (figures["cases_right"], figures["precision"]) == (right, precision)


@pytest.mark.parametrize("found,right", [(["a"], 1), (["a", "b"], 0), (["pinned", "a"], 0), ([], 1)])
def test_a_case_that_only_excludes_allows_everything_else(found: list[str], right: float):
    case = Case("c", "ada", ("domain:code",), "?", None, frozenset(["b", "pinned"]))
    assert summary([judge(case, found, JUDGED)])["cases_right"] == right


def test_silence_is_counted_where_nothing_belongs_into_a_block():
    nothing = Case("c", "ada", ("domain:code",), "?", frozenset(), frozenset())
    something = Case("c", "ada", ("domain:code",), "?", frozenset("a"), frozenset())
    judged = [judge(nothing, [], JUDGED), judge(nothing, ["a"], JUDGED), judge(something, ["a"], JUDGED)]
    assert summary(judged)["silence"] == 0.5
