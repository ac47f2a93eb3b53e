"""Renders the chart without Helm: `if`, `with`, `define`, `include` and the functions that its templates use.

Enough to see that values exist, that the indentation is right, and what the manifests say. Anything else fails.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

CONTROL = re.compile(r"^\s*\{\{- (if|with|define|end)\b ?(.*?) -?\}\}$")
EXPRESSION = re.compile(r"\{\{-? (.*?) -?\}\}")


@dataclass
class Chart:
    folder: Path
    values: dict[str, Any]
    release: str = "shop"
    definitions: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        meta = yaml.safe_load((self.folder / "Chart.yaml").read_text(encoding="utf-8"))
        self.built_in = {
            ".Release.Name": self.release,
            ".Release.Service": "Helm",
            ".Chart.Name": meta["name"],
            ".Chart.AppVersion": meta["appVersion"],
        }
        self._render((self.folder / "templates" / "_helpers.tpl").read_text(encoding="utf-8").splitlines(), None)

    def manifests(self) -> list[dict[str, Any]]:
        files = sorted((self.folder / "templates").glob("*.yaml"))
        texts = [self._render(file.read_text(encoding="utf-8").splitlines(), None) for file in files]
        return [manifest for text in texts for manifest in yaml.safe_load_all(text) if manifest]

    def _render(self, lines: list[str], dot: Any) -> str:
        out: list[str] = []
        at = 0
        while at < len(lines):
            control = CONTROL.match(lines[at])
            if control is None:
                out.append(EXPRESSION.sub(lambda found: self._value(found[1], dot), lines[at]))
                at += 1
                continue
            end = _end_of(lines, at)
            block = lines[at + 1 : end]
            match control[1]:
                case "define":
                    self.definitions[json.loads(control[2])] = block
                case "if" if bool(self._look_up(control[2].removeprefix("not "))) != control[2].startswith("not "):
                    out.append(self._render(block, dot))
                case "with" if value := self._look_up(control[2]):
                    out.append(self._render(block, value))
                case _:
                    pass
            at = end + 1
        return "\n".join(line for part in out for line in part.splitlines() if line.strip())

    def _value(self, expression: str, dot: Any) -> str:
        first, *filters = expression.split(" | ")
        value = self._first(first, dot)
        for name in filters:
            value = self._filtered(value, name)
        return str(value)

    def _first(self, text: str, dot: Any) -> Any:
        if found := re.fullmatch(r'include "([\w.]+)" \.', text):
            return self._render(self.definitions[found[1]], dot)
        if found := re.fullmatch(r"toYaml (\S+)", text):
            return _yaml(dot if found[1] == "." else self._look_up(found[1]))
        if found := re.fullmatch(r'required "[^"]+" (\S+)', text):
            value = self._look_up(found[1])
            assert value, f"{found[1]} is required"
            return value
        return self._look_up(text)

    def _filtered(self, value: Any, name: str) -> Any:
        if found := re.fullmatch(r"nindent (\d+)", name):
            return "\n" + "\n".join(" " * int(found[1]) + line for line in value.splitlines())
        if found := re.fullmatch(r'default \(include "([\w.]+)" \.\)', name):
            return value or self._render(self.definitions[found[1]], None)
        if found := re.fullmatch(r"trunc (\d+)", name):
            return value[: int(found[1])]
        if found := re.fullmatch(r'trimSuffix "(.+)"', name):
            return value.removesuffix(found[1])
        if name == "toJson":
            return json.dumps(value)
        if name == 'trimAll "\\""':
            return value.strip('"')
        if name == "sha256sum":
            return hashlib.sha256(value.encode()).hexdigest()
        assert name == "quote", f"unknown function {name}"
        if value is None:
            return ""
        return json.dumps(value if isinstance(value, str) else _yaml(value), ensure_ascii=False)

    def _look_up(self, path: str) -> Any:
        if path in self.built_in:
            return self.built_in[path]
        assert path.startswith(".Values."), f"unknown expression {path!r}"
        value: Any = self.values
        for part in path.removeprefix(".Values.").split("."):
            value = value[part]
        return value


def _yaml(value: Any) -> str:
    """As YAML without blank lines, which `Chart` drops: an item of a list, or else all of it, is one line of JSON."""
    if isinstance(value, list) and value:
        return "\n".join(f"- {json.dumps(item, ensure_ascii=False)}" for item in value)
    return json.dumps(value, ensure_ascii=False)


def _end_of(lines: list[str], start: int) -> int:
    depth = 0
    for at in range(start, len(lines)):
        if control := CONTROL.match(lines[at]):
            depth += -1 if control[1] == "end" else 1
            if depth == 0:
                return at
    raise AssertionError(f"no end of {lines[start]!r}")
