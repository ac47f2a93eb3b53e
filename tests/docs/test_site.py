"""The site has every page and every public name. `make docs` builds it, and finds links and names that lead nowhere."""

from __future__ import annotations

import ast
import posixpath
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from romancy import hooks
from scripts import docs_pages

ROOT = Path(__file__).parents[2]
CONFIG: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
SHOWN = [
    name.replace("environment.environment", "environment")  # the function; the module has the same name
    for page in sorted((ROOT / "docs" / "reference").glob("*.md"))
    for name in re.findall(r"^::: ([\w.]+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
]
MODULES = {
    "romancy": "__init__.py",
    "romancy.sync": "sync/__init__.py",
    "romancy.testing": "testing/__init__.py",
    "romancy.codecs": "codecs.py",
    "romancy.contrib.mcp": "contrib/mcp/__init__.py",
    "romancy.contrib.opentelemetry": "contrib/opentelemetry/__init__.py",
    "romancy.contrib.pydantic_ai": "contrib/pydantic_ai/__init__.py",
    "romancy.contrib.sqlalchemy": "contrib/sqlalchemy.py",
}
ELSEWHERE = {"romancy.__version__", "romancy.codecs.CodecError", "romancy.codecs.PayloadCodec"}


def public_names(module: str) -> set[str]:
    """Read `__all__` without importing what the module needs."""
    code = ast.parse((ROOT / "src" / "romancy" / MODULES[module]).read_text(encoding="utf-8"))
    [names] = [
        ast.literal_eval(line.value)
        for line in code.body
        if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "__all__"
    ]
    return {f"{module}.{name}" for name in names} - ELSEWHERE


def infos_of_hooks() -> set[str]:
    return {name for name, value in vars(hooks).items() if isinstance(value, type) and name.endswith("Info")}


def test_every_page_is_in_the_navigation_once() -> None:
    listed = [page.path for page in docs_pages.navigation(CONFIG)]
    assert len(listed) == len(set(listed))
    files = ("examples/", "deploy/", "LICENSE")  # these are reached from pages
    pages = {path for path in docs_pages.pages() if path == "examples/index.md" or not path.startswith(files)}
    assert set(listed) == pages


def test_every_link_leads_to_a_page_or_a_picture() -> None:
    pages = docs_pages.pages()
    pictures = {file.relative_to(ROOT / "docs").as_posix() for file in (ROOT / "docs" / "images").iterdir()}
    made = {"llms.txt", "llms-full.txt"}
    lost = [
        f"{path}: {link['path']}"
        for path, markdown in pages.items()
        if not path.startswith(("examples/", "deploy/"))
        for link in docs_pages.LINK.finditer(re.sub(r"^(```+).*?^\1$", "", markdown, flags=re.DOTALL | re.MULTILINE))
        if posixpath.normpath(posixpath.join(posixpath.dirname(path), link["path"])) not in {*pages, *pictures, *made}
    ]
    assert lost == []


def test_no_text_in_brackets_comes_before_a_link() -> None:
    """`[ ] [retention](page.md)` is one link on the site, which reads it as `[ ][retention]`: a name elsewhere."""
    found = [
        f"{path}: {line}"
        for path, markdown in docs_pages.pages().items()
        if not path.startswith(("examples/", "deploy/"))
        for line in re.sub(r"^(```+).*?^\1$|`[^`\n]*`", "", markdown, flags=re.DOTALL | re.MULTILINE).splitlines()
        if "] [" in line
    ]
    assert found == []


def test_check_lists_have_boxes() -> None:
    assert any("- [ ] " in markdown for markdown in docs_pages.pages().values())
    assert any("pymdownx.tasklist" in extension for extension in CONFIG["markdown_extensions"])


@pytest.mark.parametrize("module", MODULES)
def test_the_reference_has_every_public_name(module: str) -> None:
    assert public_names(module) - set(SHOWN) == set()


def test_no_module_of_contrib_is_left_out() -> None:
    found = {path.name.removesuffix(".py") for path in (ROOT / "src" / "romancy" / "contrib").glob("[a-z]*")}
    assert {f"romancy.contrib.{name}" for name in found} - set(MODULES) == set()


def test_the_reference_has_every_info_of_a_hook() -> None:
    assert infos_of_hooks() - {name.rsplit(".", 1)[1] for name in SHOWN} == set()


def test_the_reference_has_no_name_twice_and_none_that_is_gone() -> None:
    assert len(SHOWN) == len(set(SHOWN))
    known = set[str]().union(*map(public_names, MODULES)) | {f"romancy.hooks.{name}" for name in infos_of_hooks()}
    assert set(SHOWN) - known == set()


@pytest.mark.parametrize(
    ("path", "markdown", "shown"),
    [
        ("README.md", "[a](docs/guide.md#timers)", "[a](guide.md#timers)"),
        ("README.md", "[a](examples/README.md)", "[a](examples/index.md)"),
        ("README.md", "[docs/faq.md](docs/faq.md)", "[FAQ](faq.md)"),
        ("docs/faq.md", "[faq.md](faq.md#a) [b.md](b.md)", "[FAQ](faq.md#a) [b.md](b.md)"),
        ("docs/agents.md", "[a](../examples/agent.py)", "[a](examples/agent.py.md)"),
        ("docs/faq.md", "[a](../CHANGELOG.md) [b](guide.md)", "[a](changelog.md) [b](guide.md)"),
        ("docs/reference/app.md", "[a](../http.md)", "[a](../http.md)"),
        ("examples/README.md", "[a](saga.py)", "[a](saga.py.md)"),
        ("examples/django_shop/README.md", "[a](orders/views.py)", "[a](orders/views.py.md)"),
        ("README.md", '<img alt="x" src="docs/images/demo.svg">', '<img alt="x" src="images/demo.svg">'),
        ("README.md", '<source srcset="docs/images/demo.svg">', '<source srcset="images/demo.svg">'),
        ("docs/viewer.md", '<img src="images/demo.svg">', '<img src="images/demo.svg">'),
        ("docs/guide.md", "[a](https://a.b/c.py) [b](#timers)", "[a](https://a.b/c.py) [b](#timers)"),
    ],
)
def test_links_are_right_on_the_site(path: str, markdown: str, shown: str) -> None:
    assert docs_pages.linked(markdown, path) == shown


def test_llms_txt_lists_every_page_with_its_first_sentence() -> None:
    text = docs_pages.overview(CONFIG, docs_pages.pages())
    for page in docs_pages.navigation(CONFIG):
        assert f"- [{page.title}](text/{page.path}): " in text
    assert "- [Sinks](text/sinks.md): " in text
    assert text.startswith("# Romancy\n\n> Durable workflows")


def test_llms_full_txt_spells_out_the_reference() -> None:
    text = "# A\n\n::: romancy.App\n    options:\n      heading_level: 3\n\n::: romancy.Client\n"
    spelled = docs_pages.spelled_out({"a.md": text}, lambda name: f"<{name}>\n")
    assert spelled == {"a.md": "# A\n\n<romancy.App>\n\n<romancy.Client>\n"}
