"""Call a client library in a workflow without writing an activity for each call.

`step` records what the function returns. After a crash, recorded steps are not repeated, so a
language model is not paid twice for the same answer.
"""

import asyncio
from dataclasses import dataclass
from datetime import timedelta

from romancy import ActivityContext, App, RetryPolicy, WorkflowContext, step, workflow

PATIENT = RetryPolicy(max_attempts=3, initial=timedelta(milliseconds=10))


@dataclass
class Reply:
    text: str
    tokens: int


async def ask(prompt: str) -> Reply:
    """A client library of your own choice."""
    if ActivityContext.current().attempt == 1 and "translate" in prompt:
        raise ConnectionError("overloaded")
    return Reply(f"[{prompt}]", len(prompt.split()))


@workflow
async def translate(ctx: WorkflowContext, text: str, languages: list[str]) -> list[str]:
    async def into(language: str) -> Reply:
        prompt = f"translate {text} into {language}"
        return await step(ctx, "model", lambda: ask(prompt), result=Reply, input=prompt, retry=PATIENT, timeout=60)

    replies = await asyncio.gather(*map(into, languages))

    def bill() -> int:  # a plain function runs in a thread
        return sum(reply.tokens for reply in replies)

    return [*(reply.text for reply in replies), f"{await step(ctx, 'bill', bill)} tokens"]


WORKFLOWS = [translate]


async def main() -> None:
    async with App(":memory:", workflows=WORKFLOWS) as app:
        handle = await app.start_workflow(translate, "hello", ["Basque", "Welsh"])
        for line in await handle.result(timeout=10):
            print(line)


if __name__ == "__main__":
    asyncio.run(main())

# expect: [translate hello into Basque]
# expect: [translate hello into Welsh]
# expect: 8 tokens
