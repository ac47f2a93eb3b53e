"""Workers that are killed while people answer: every question is decided once, by its own first answers."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import httpx2
import pytest

from romancy import App, Database
from tests.crash.asking_worker import KEY, ROUNDS, URL, interview
from tests.crash.processes import spawn

pytestmark = pytest.mark.play

THOROUGH = bool(os.environ.get("ROMANCY_TEST_THOROUGH"))
INTERVIEWS = 30 if THOROUGH else 6


class People:
    """Ann, Bob and Cy: they open links as they find them, and answer twice, each time with something else."""

    def __init__(self, folder: Path, browser: httpx2.AsyncClient, luck: random.Random) -> None:
        self._folder, self._browser, self._luck = folder, browser, luck
        self._seen: set[str] = set()
        self.thanked: set[str] = set()
        """Answers that a page said thank you for."""

    async def answer(self) -> None:
        fresh = [path for path in self._folder.iterdir() if path.name[0] != "." and path.name not in self._seen]
        self._luck.shuffle(fresh)
        for path in fresh:
            self._seen.add(path.name)
            link = path.read_text().removeprefix(URL)
            for attempt in ("first", "second"):
                said = await self._browser.post(link, data={"value": f"{path.name}-{attempt}"})
                if said.status_code == 303 and attempt == "first":
                    self.thanked.add(path.name)


async def test_every_question_is_decided_by_its_own_answers(place: tuple[str, str], tmp_path: Path) -> None:
    url, schema = place
    folder, luck = tmp_path / "links", random.Random(4)
    folder.mkdir()
    app = App(Database(url, schema=schema or None), worker=False, public_url=URL, signing_keys=[KEY])
    workers = [spawn("tests.crash.asking_worker", url, schema, str(folder)) for _ in range(2)]
    try:
        async with app, httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=URL) as browser:
            people = People(folder, browser, luck)
            ids = [f"i{n}" for n in range(INTERVIEWS)]
            for id in ids:
                await app.start_workflow("interview", instance_id=id)
            async with asyncio.timeout(180):
                while len((await app.list_instances(status="completed", limit=100)).items) < INTERVIEWS:
                    await people.answer()
                    await asyncio.sleep(luck.uniform(0.05, 0.3))
                    if luck.random() < 0.25:
                        victim = luck.randrange(2)
                        workers[victim].kill()
                        workers[victim].wait()
                        workers[victim] = spawn("tests.crash.asking_worker", url, schema, str(folder))
            outputs = {id: await app.handle(id, interview).result(10) for id in ids}
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    for id, decisions in outputs.items():
        assert len(decisions) == ROUNDS
        for number, answers in enumerate(decisions):
            assert len(answers) == 2
            for answer in answers:
                person, _, data = answer.partition(":")
                assert data == f"{id}.{number}.{person}-first", "of this person, to this question, the first one"
                assert f"{id}.{number}.{person}" in people.thanked
