"""Gather the pages of the site in build/docs, from where Zensical builds it: python scripts/docs_pages.py.

- docs/ is the site. README.md is its front page; CHANGELOG.md and the like, LICENSE, and every file below examples/ and
  deploy/, are pages, too. Links between all of them work on the site as they work in the repository.
- Each page is also published as Markdown below `text/`. `llms.txt` lists these, and `llms-full.txt` has them in one
  file. There, the reference is spelled out.
"""

from __future__ import annotations

import posixpath
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
LINK = re.compile(
    r"""(?P<before>\]\(|\bsrc(?:set)?=")(?!https?://|mailto:|#)(?P<path>[^)#\s"]+)(?P<anchor>#[^)\s"]*)?(?P<after>[)"])"""
)
NAMED_BY_PATH = re.compile(r"\[(?P<text>[\w/.-]+\.md)\](?=\((?P=text)[)#])")
LANGUAGES = {"Dockerfile": "dockerfile", ".py": "python", ".service": "ini", ".yaml": "yaml"}
REFERENCE = re.compile(r"^::: (?P<name>[\w.]+)\n(?:    .*\n)*", re.MULTILINE)


@dataclass
class Listed:
    """A page in the navigation."""

    section: str
    title: str
    path: str


def address(path: str) -> str:
    """Return the page of the site that shows a file of the repository."""
    path = posixpath.normpath(path)
    if path == "LICENSE" or path.split("/")[0] == "deploy":
        return f"{path}/index.md" if (ROOT / path).is_dir() else f"{path}.md"
    if path == "README.md":
        return "index.md"
    if "/" not in path and path.endswith(".md"):
        return path.lower()
    if path == "examples" or posixpath.basename(path) == "README.md":
        return posixpath.join(path.removesuffix("README.md"), "index.md")
    return path.removeprefix("docs/") + (".md" if path.endswith(".py") else "")


def linked(markdown: str, path: str) -> str:
    """Return the Markdown of a file of the repository with links that are right on the site.

    Links that show the path of a page show its title there.
    """

    def link(found: re.Match[str]) -> str:
        target = posixpath.join(posixpath.dirname(path), found["path"])
        if not (ROOT / target).exists():
            return found[0]  # the build finds it
        relative = posixpath.relpath(address(target), posixpath.dirname(address(path)) or ".")
        return f"{found['before']}{relative}{found['anchor'] or ''}{found['after']}"

    def title(found: re.Match[str]) -> str:
        file = ROOT / posixpath.dirname(path) / found["text"]
        return f"[{_title(file)}]" if file.exists() else found[0]

    return LINK.sub(link, NAMED_BY_PATH.sub(title, markdown))


def _title(file: Path) -> str:
    return file.read_text(encoding="utf-8").split("\n", 1)[0].removeprefix("# ")


def pages() -> dict[str, str]:
    """Return the Markdown of all pages, by their address."""
    found: dict[str, str] = {}
    folders = [*sorted((ROOT / "docs").rglob("*")), *sorted((ROOT / "examples").rglob("*"))]
    for file in (*sorted(ROOT.glob("*.md")), *folders):
        path = file.relative_to(ROOT).as_posix()
        if file.suffix == ".md":
            found[address(path)] = linked(file.read_text(encoding="utf-8"), path)
        elif file.suffix == ".py" and file.stat().st_size:
            source = file.read_text(encoding="utf-8").rstrip()
            found[address(path)] = f"# {file.name}\n\n```python\n{source}\n```\n"
    for file in (ROOT / "LICENSE", ROOT / "deploy", *_below(ROOT / "deploy")):
        found[address(file.relative_to(ROOT).as_posix())] = _folder(file) if file.is_dir() else _file(file)
    return found


def _below(folder: Path) -> list[Path]:
    """Return what is below a folder, without hidden files: the builder makes no pages of them."""
    return [file for file in sorted(folder.rglob("*")) if file.name[0] != "." and "__pycache__" not in file.parts]


def _folder(folder: Path) -> str:
    """Return a page that lists the files of a folder."""
    files = [file.relative_to(folder).as_posix() for file in _below(folder) if file.is_file()]
    listed = "\n".join(f"- [{file}]({file}.md)" for file in files)
    return f"# {folder.relative_to(ROOT).as_posix()}\n\n{listed}\n"


def _file(file: Path) -> str:
    """Return a page that shows a file."""
    language = LANGUAGES.get(file.suffix or file.name, "text")
    return f"# {file.name}\n\n````{language}\n{file.read_text(encoding='utf-8').rstrip()}\n````\n"


def navigation(config: dict[str, Any]) -> Iterator[Listed]:
    """Yield the pages that mkdocs.yml lists, in order. A group of pages belongs to its section."""

    def listed(section: str, title: str, content: Any) -> Iterator[Listed]:
        if isinstance(content, str):
            yield Listed(section, title, content)
            return
        for entry in content:
            for inner, below in entry.items():
                yield from listed(section, inner, below)

    for item in config["nav"]:
        for section, content in item.items():
            yield from listed(section, section, content)


def summary(markdown: str) -> str:
    """Return the first sentence of a page, without its links."""
    for part in markdown.split("\n\n"):
        if part.strip() and not part.startswith(("#", "```", ":::", "<", "|")):
            text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", " ".join(part.split()))
            return re.sub(":$", ".", re.split(r"(?<=[.:]) ", text, maxsplit=1)[0])
    return ""


def overview(config: dict[str, Any], texts: dict[str, str]) -> str:
    """Return llms.txt: the title, the address and the first sentence of every page."""
    lines = [f"# {config['site_name']}", "", f"> {config['site_description']}", ""]
    lines += ["All pages in one file: [llms-full.txt](llms-full.txt)"]
    section = None
    for page in navigation(config):
        if page.section != section:
            section = page.section
            lines += ["", f"## {section}", ""]
        about = summary(texts[page.path])
        lines.append(f"- [{page.title}](text/{page.path})" + (f": {about}" if about else ""))
    return "\n".join(lines) + "\n"


def spelled_out(texts: dict[str, str], describe: Callable[[str], str]) -> dict[str, str]:
    """Return the pages with the description of every name that they refer to."""
    return {path: REFERENCE.sub(lambda found: describe(found["name"]), text) for path, text in texts.items()}


def write(folder: Path, describe: Callable[[str], str]) -> None:
    """Write all pages and their pictures into an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", folder)
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    texts = pages()
    full = spelled_out(texts, describe)
    for path, text in texts.items():
        _put(folder / path, text)
    _put(folder / "llms.txt", overview(config, texts))
    _put(folder / "llms-full.txt", "\n\n".join(full[page.path].strip() for page in navigation(config)) + "\n")


def write_texts(folder: Path, describe: Callable[[str], str]) -> None:
    """Write the pages as Markdown. The builder would make pages of them, so this comes after it."""
    for path, text in spelled_out(pages(), describe).items():
        _put(folder / path, text)


def _put(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def described() -> Callable[[str], str]:
    """Return what describes a public name: its signature, its docstring and its members."""
    import griffe  # only in the environment of scripts/docs

    library = griffe.load("romancy", search_paths=[str(ROOT / "src")])

    def texts(found: Any) -> list[str]:
        parts: list[str] = []
        if found.is_function or (found.is_class and found.parameters):
            parts.append(f"```python\n{found.signature()}\n```\n")
        elif found.is_attribute and found.annotation:
            parts.append(f"```python\n{found.name}: {found.annotation}\n```\n")
        return [*parts, f"{found.docstring.value}\n"] if found.docstring else parts

    def describe(name: str) -> str:
        found = library[name.removeprefix("romancy.")]
        parts = [f"## {name}\n", *texts(found)]
        for member in found.all_members.values() if found.is_class else ():
            if not member.name.startswith("_"):
                parts += [f"### {member.name}\n", *texts(member)]
        return "\n".join(parts)

    return describe


if __name__ == "__main__":
    import sys

    if sys.argv[1:] == ["texts"]:
        write_texts(ROOT / "site" / "text", described())
    else:
        write(ROOT / "build" / "docs", described())
