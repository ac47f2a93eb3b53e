"""`ask`: a person decides on a page with a signed link; a reminder, then an escalation.

The mails go to the server named by SMTP_HOST and SMTP_PORT. Without one, this example keeps them and answers itself.
"""

import asyncio
import os
import smtplib
from dataclasses import dataclass
from datetime import timedelta
from email.message import EmailMessage

import httpx2

from romancy import ActivityContext, App, Duration, Invitation, WaitTimeout, WorkflowContext, activity, ask, workflow

CLERK, BOSS = "ann@shop.example", "boss@shop.example"
DAY = timedelta(days=1)
kept: list[EmailMessage] = []


@dataclass
class Approval:
    approved: bool
    note: str = ""


@activity
def send_mail(ctx: ActivityContext, invitation: Invitation, subject: str) -> None:
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = "shop@shop.example", invitation.person, subject
    mail.set_content(f"Please decide here: {invitation.url(ctx)}\n")
    if host := os.environ.get("SMTP_HOST"):
        with smtplib.SMTP(host, int(os.environ.get("SMTP_PORT", "25"))) as server:
            server.send_message(mail)
    else:
        kept.append(mail)


@workflow
async def refund(ctx: WorkflowContext, order: str, patience: Duration = DAY) -> str:
    question = await ask(ctx, Approval, title=f"Refund {order}?", people=[CLERK, BOSS], expires_in=timedelta(days=7))
    clerk, boss = question.invitations[CLERK], question.invitations[BOSS]
    for person, subject in ((clerk, "A refund"), (clerk, "Reminder: a refund"), (boss, "Nobody answers: a refund")):
        await send_mail(ctx, person, subject)
        try:
            answer = await question.answer(timeout=None if person is boss else patience)
        except WaitTimeout:
            continue
        return f"{'refunded' if answer.data.approved else 'refused'} by {answer.by}"
    return "nobody decided"


WORKFLOWS = [refund]


async def main() -> None:
    keys = ["change-me-32-characters-or-more-from-the-environment"]
    app = App(":memory:", workflows=WORKFLOWS, public_url="https://shop.example", signing_keys=keys)
    async with app, httpx2.AsyncClient(transport=httpx2.ASGITransport(app)) as browser:
        handle = await app.start_workflow(refund, "ORD-1", patience=0.1)
        while len(kept) < 3:  # noqa: ASYNC110 - an activity in a thread keeps them
            await asyncio.sleep(0.01)
        print(*(f"{mail['To']}: {mail['Subject']}" for mail in kept), sep="\n")
        link = kept[-1].get_content().split()[-1]
        await browser.post(link, data={"approved": "true"})
        print(await handle.result(timeout=10))


if __name__ == "__main__":
    asyncio.run(main())

# expect: ann@shop.example: A refund
# expect: ann@shop.example: Reminder: a refund
# expect: boss@shop.example: Nobody answers: a refund
# expect: refunded by boss@shop.example
