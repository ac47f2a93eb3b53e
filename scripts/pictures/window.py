"""The shop at work, behind a server, and the browser that takes pictures of its viewer."""

from __future__ import annotations

import shutil
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from playwright.async_api import Browser, async_playwright

from romancy import App, WorkerOptions
from romancy.cli.demo.browser import serving
from scripts.pictures import shop
from scripts.pictures.past import KEYS

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--hide-scrollbars"]
WIDTH, HEIGHT = 1280, 800


@dataclass(frozen=True)
class Shot:
    """A page of the viewer."""

    name: str
    path: str


@asynccontextmanager
async def at_work(database: Path) -> AsyncGenerator[str]:
    """Run three workers of the shop. Yields the address of the viewer."""
    async with AsyncExitStack() as stack:
        for n in (1, 2, 3):
            options = WorkerOptions(grace=0, build="2026-11-18")
            app = App(database, workflows=shop.WORKFLOWS, worker=options, signing_keys=KEYS)
            with patch("socket.gethostname", return_value=f"shop-{n}"):  # this machine's name is nobody's business
                await stack.enter_async_context(app)
        products = ["lamp", "desk", "chair", "shelf", "clock", "stool", "mirror", "rug"]
        for product in products:
            await app.start_workflow(shop.resize_images.options(instance_id=f"images-{product}"), product)
        yield await stack.enter_async_context(serving(app))


async def take(address: str, shots: Sequence[Shot], folder: Path) -> list[Path]:
    """Take the pictures, in light and dark. Returns the files."""
    if CHROMIUM is None:
        raise SystemExit("no chromium found: install Debian's package `chromium`")
    taken: list[Path] = []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        for shot in shots:
            for scheme in ("light", "dark"):
                file = folder / f"viewer-{shot.name}-{scheme}.png"
                await _take(browser, address, shot, scheme, file)
                taken.append(file)
        await browser.close()
    return taken


async def _take(browser: Browser, address: str, shot: Shot, scheme: str, file: Path) -> None:
    page = await browser.new_page(
        viewport={"width": WIDTH, "height": HEIGHT},
        color_scheme="dark" if scheme == "dark" else "light",
        reduced_motion="reduce",
        timezone_id="UTC",
    )
    await page.goto(f"{address}{shot.path}")
    await page.locator("#live.on").wait_for()
    await page.screenshot(path=str(file), animations="disabled")
    await page.close()
