"""The example that asks people: its mails arrive at a real mail server, a link from them is answered, time passes."""

from __future__ import annotations

import asyncio
import email
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from email.message import Message

import httpx2
import pytest

from examples.asking_people import BOSS, CLERK, refund
from romancy.testing import Environment, environment


class MailServer:
    """Takes mails by SMTP, as far as `smtplib` speaks it."""

    def __init__(self) -> None:
        self.mails: list[Message] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def say(text: str) -> None:
            writer.write(f"{text}\r\n".encode())
            await writer.drain()

        await say("220 mail")
        while line := (await reader.readline()).decode():
            verb = line[:4].upper().strip()
            if verb == "DATA":
                await say("354 go on")
                body = await reader.readuntil(b"\r\n.\r\n")
                self.mails.append(email.message_from_bytes(body[:-5]))
            await say("221 bye" if verb == "QUIT" else "250 ok")
        writer.close()


@asynccontextmanager
async def receiving(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MailServer]:
    mails = MailServer()
    server = await asyncio.start_server(mails.serve, "127.0.0.1", 0)
    monkeypatch.setenv("SMTP_HOST", "127.0.0.1")
    monkeypatch.setenv("SMTP_PORT", str(server.sockets[0].getsockname()[1]))
    async with server:
        yield mails


@pytest.fixture
async def env() -> AsyncIterator[Environment]:
    options = {"public_url": "https://shop.example", "signing_keys": ["k" * 32]}
    async with environment(workflows=[refund], **options) as env:
        yield env


def link_in(mail: Message) -> str:
    content = mail.get_payload(decode=True)
    assert isinstance(content, bytes)
    return content.decode().split()[-1]


def told(mails: MailServer) -> list[tuple[str, str]]:
    return [(str(mail["To"]), str(mail["Subject"])) for mail in mails.mails]


async def test_a_reminder_an_escalation_and_an_answer(env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    async with receiving(monkeypatch) as mails:
        handle = await env.start(refund, "ORD-1")
        assert told(mails) == [(CLERK, "A refund")]
        await env.advance(timedelta(days=1))
        assert told(mails)[1:] == [(CLERK, "Reminder: a refund")]
        await env.advance(timedelta(days=1))
        assert told(mails)[2:] == [(BOSS, "Nobody answers: a refund")]
        link = link_in(mails.mails[0])
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(env.app)) as browser:
            assert (await browser.get(link)).status_code == 200, "the first link still works"
            assert (await browser.post(link, data={"approved": "false", "note": "no"})).status_code == 303
        assert await handle.result() == f"refused by {CLERK}"


async def test_nobody_answers(env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    async with receiving(monkeypatch):
        handle = await env.start(refund, "ORD-1")
        assert await handle.result() == "nobody decided"
        assert (env.now - (await env.app.get_instance(handle.instance_id)).started_at) == timedelta(days=7)
