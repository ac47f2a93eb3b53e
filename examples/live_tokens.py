"""Show what a model says while it says it, and miss nothing after a crash.

The activity emits words as they come; a reader follows them live. The first attempt breaks off
half-way: the reader is told that the activity begins anew, and drops what it had.
"""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

from romancy import ActivityContext, App, RetryPolicy, WorkflowContext, activity, emit, workflow

ANSWER = "A durable workflow survives crashes and restarts"


async def fake_model(breaks: bool) -> AsyncIterator[str]:
    """Stands for the streaming API of a model."""
    for n, word in enumerate(ANSWER.split()):
        if breaks and n == 3:
            raise ConnectionError("the model hung up")
        yield word
        await asyncio.sleep(0.005)


@activity(retry=RetryPolicy(initial=timedelta(milliseconds=20)))
async def ask(ctx: ActivityContext, question: str) -> str:
    words: list[str] = []
    async for word in fake_model(breaks=ctx.attempt == 1):
        await emit(ctx, word, topic="tokens")
        words.append(word)
    return " ".join(words)


@workflow
async def chat(ctx: WorkflowContext, question: str) -> str:
    await emit(ctx, {"question": question}, topic="log")
    return await ask(ctx, question)


WORKFLOWS = [chat]


async def main() -> None:
    async with App(":memory:", workflows=WORKFLOWS) as app:
        handle = await app.start_workflow(chat, "What is a durable workflow?")
        shown: list[str] = []
        async for token in handle.emitted("tokens"):
            if token.kind == "restart":
                print(f"{token.activity_id} begins anew after {len(shown)} words")
                shown.clear()
            else:
                shown.append(token.value)
        print(" ".join(shown))
        print(await handle.result() == ANSWER)
        late = [token.value async for token in handle.emitted("tokens", model=str, after=8)]
        print("after 8:", late)


if __name__ == "__main__":
    asyncio.run(main())

# expect: ask:1 begins anew after 3 words
# expect: A durable workflow survives crashes and restarts
# expect: True
# expect: after 8: ['crashes', 'and', 'restarts']
