"""Clients nobody here wrote: the published CloudEvents libraries for Python and JavaScript wake a waiting workflow."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import httpx2
import pytest
from cloudevents.core.bindings import http
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent

from tests.http.conftest import Live

NODE_PACKAGE = "cloudevents@10"
SENDER = """
import { CloudEvent, HTTP, emitterFor, httpTransport } from "cloudevents";
const [url, mode, amount] = process.argv.slice(2);
const event = new CloudEvent({
    id: `node-${mode}`, source: "/node", type: "paid", subject: "100% café", data: { amount: Number(amount) },
});
const message = mode === "binary" ? HTTP.binary(event) : HTTP.structured(event);
const answer = await fetch(url, { method: "POST", headers: message.headers, body: message.body });
console.log(answer.status, await answer.text());
const emit = emitterFor(httpTransport(url), { mode: mode === "binary" ? "binary" : "structured" });
const again = await emit(event);
console.log("again", JSON.stringify(again.body ?? again));
"""


@pytest.mark.parametrize("mode", ["binary", "structured"])
def test_the_python_library_delivers(live: Live, mode: str) -> None:
    live.start("pay", id="one")
    live.until("one", "waiting_for_event")
    attributes = {"id": "py-1", "source": "/python", "type": "paid", "specversion": "1.0", "subject": "100% café"}
    event = CloudEvent(attributes={**attributes, "datacontenttype": "application/json"}, data={"amount": 9.5})
    write = http.to_binary if mode == "binary" else http.to_structured
    message = write(event, JSONFormat())
    answer = httpx2.post(live.url, headers=message.headers, content=message.body)
    assert (answer.status_code, answer.json()["delivered"]) == (202, 1)
    assert live.result("one")["output"] == 9.5
    [stored] = live.client.get("/api/events").json()["items"]
    assert (stored["id"], stored["source"], stored["subject"]) == ("py-1", "/python", "100% café")


@pytest.fixture(scope="session")
def node_sender(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A script with the JavaScript library beside it; installed once."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        if os.environ.get("CI"):
            pytest.fail("node and npm are needed here: the JavaScript library is one of the clients that must work")
        pytest.skip("node and npm are not installed: the JavaScript client is not tried")
    folder = tmp_path_factory.mktemp("node")
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "send.js").write_text(SENDER)
    command = ["npm", "install", "--no-audit", "--no-fund", "--silent", NODE_PACKAGE]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=110)
    if done.returncode:
        if os.environ.get("CI"):
            pytest.fail(f"{NODE_PACKAGE} can't be installed: {done.stderr}")
        pytest.skip(f"{NODE_PACKAGE} can't be installed, so the JavaScript client is not tried: {done.stderr[:200]}")
    return folder / "send.js"


@pytest.mark.parametrize("mode", ["binary", "structured"])
def test_the_javascript_library_delivers(live: Live, node_sender: Path, mode: str) -> None:
    live.start("pay", id="one")
    live.until("one", "waiting_for_event")
    command = ["node", str(node_sender), f"{live.url}/", mode, "12.25"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    first, again = done.stdout.splitlines()
    assert first.startswith("202 ")
    assert '"delivered":1' in first
    assert '"duplicate":true' in again.replace("\\", ""), "its own transport sent the same event once more"
    assert live.result("one")["output"] == 12.25
    [stored] = live.client.get("/api/events").json()["items"]
    assert (stored["id"], stored["source"], stored["subject"]) == (f"node-{mode}", "/node", "100% café")
