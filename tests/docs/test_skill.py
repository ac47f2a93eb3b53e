"""The skill for coding agents is what scripts/skill.py makes of the documentation."""

from __future__ import annotations

import re

import yaml

from scripts import skill
from tests.cli.test_group import COMMANDS
from tests.docs.test_docs import LINK

TEXT = skill.SKILL.read_text(encoding="utf-8")


def test_it_is_up_to_date() -> None:
    assert skill.skill() == TEXT, "run `python scripts/skill.py`"


def test_it_has_a_name_and_a_description() -> None:
    head = yaml.safe_load(TEXT.split("---\n")[1])
    assert head["name"] == "romancy" == skill.SKILL.parent.name
    assert 0 < len(head["description"]) <= 1024


def test_its_links_lead_somewhere() -> None:
    assert [link for link in LINK.findall(TEXT) if not (skill.SKILL.parent / link).exists()] == []


def test_its_commands_exist() -> None:
    named = set(re.findall(r"^romancy (\w+)", skill.COMMANDS, re.MULTILINE))
    assert named
    assert named <= set(COMMANDS)
