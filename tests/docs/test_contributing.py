"""What CONTRIBUTING.md, SECURITY.md and the templates refer to exists, and the forms are valid."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.crash import stage, test_every_commit_point
from tests.crash.scenarios import SCENARIOS
from tests.docs.test_docs import LINK

ROOT = Path(__file__).parents[2]
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
TEMPLATES = ROOT / ".github" / "ISSUE_TEMPLATE"
FORMS = sorted(path for path in TEMPLATES.glob("*.yml") if path.name != "config.yml")


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "SECURITY.md"])
def test_links_lead_somewhere(page: str) -> None:
    links = LINK.findall((ROOT / page).read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    text = CONTRIBUTING + (ROOT / ".github" / "pull_request_template.md").read_text(encoding="utf-8")
    named = set(re.findall(r"(?:`|^    )make ([a-z-]+)", text, re.MULTILINE))
    assert {"check", "test", "plays"} <= named <= targets


def test_files_exist() -> None:
    named = set(re.findall(r"\b((?:tests|docs)/[\w/.]*\w)", CONTRIBUTING))
    assert "tests/crash/faults.py" in named
    assert {path for path in named if not (ROOT / path).exists()} == set()


def test_the_failure_that_is_explained_can_happen() -> None:
    [test, scenario] = re.findall(r"::(\w+)\[sqlite-(\w+)-before\]", CONTRIBUTING)[0]
    assert hasattr(test_every_commit_point, test)
    assert scenario in {s.name for s in SCENARIOS}
    message = 'f"{part} differs after a crash {when} commit {k}"'
    assert message in CONTRIBUTING
    assert message in Path(test_every_commit_point.__file__).read_text(encoding="utf-8")
    outcome = Path(stage.__file__).read_text(encoding="utf-8").partition("async def outcome")[2]
    for part in ("instances", "history", "consumed", "events", "views", "attributes", "left behind"):
        assert f"`{part}`" in CONTRIBUTING
        assert f'"{part}":' in outcome


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_forms_are_valid(form: Path) -> None:
    content: dict[str, Any] = yaml.safe_load(form.read_text(encoding="utf-8"))
    assert {"name", "description", "body"} <= set(content) <= {"name", "description", "labels", "body"}
    questions = [item for item in content["body"] if item["type"] != "markdown"]
    assert len({item["id"] for item in questions}) == len(questions)
    for item in content["body"]:
        assert set(item) <= {"type", "id", "attributes", "validations"}
        assert item["type"] in {"markdown", "textarea", "input", "dropdown"}
        assert ("value" if item["type"] == "markdown" else "label") in item["attributes"]
        assert (item["type"] == "dropdown") == ("options" in item["attributes"])
    assert any(item.get("validations", {}).get("required") for item in questions)


def test_both_forms_are_offered() -> None:
    assert [form.stem for form in FORMS] == ["bug", "feature"]
    assert yaml.safe_load((TEMPLATES / "config.yml").read_text(encoding="utf-8")) == {"blank_issues_enabled": True}
