"""`retry` and `fork`: let instances go on that failed or were cancelled, or copies of any."""

from __future__ import annotations

from typing import Any

import click

from romancy.cli.bulk import Action, Chosen, act, choosing
from romancy.cli.endings import not_undone
from romancy.cli.errors import Failed
from romancy.cli.screen import json_option, print_json
from romancy.cli.target import Target
from romancy.cli.target_options import TargetOptions, target_options
from romancy.cli.words import clean
from romancy.core.versions import stored_name
from romancy.errors import NotRetryable
from romancy.reruns import Steps


@click.command()
@choosing
@click.option(
    "--step", "steps", multiple=True, metavar="OP", help="Run this operation again, like charge:1; repeatable."
)
@click.option("--all-failed", is_flag=True, help="Run all failed steps again, even those whose errors were handled.")
@target_options
def retry(steps: tuple[str, ...], all_failed: bool, options: TargetOptions, **chosen: Any) -> None:
    """Let instances go on that failed or were cancelled.

    What led to the end runs again; everything else that is recorded stays. Give ids, or filters for many instances:
    these are listed first, and you are asked. Exits with 1 if an ID can't be retried, or if no instance matches.

    \b
      romancy retry order-1 order-2
      romancy retry --status failed --workflow order --error-type ActivityError --since 2h
      romancy retry order-1 --step charge:1
    """
    if steps and all_failed:
        raise click.UsageError("give --step or --all-failed, not both", click.get_current_context())
    if (steps or all_failed) and not chosen["ids"]:
        raise click.UsageError("--step and --all-failed need the ids of instances", click.get_current_context())
    again: Steps = "failed" if all_failed else steps or None

    async def one(target: Target, id: str) -> str:
        try:
            await target.verbs.retry_workflow(id, steps=again)
        except NotRetryable as error:
            is_held = error.status == "blocked" and bool(not_undone(await target.verbs.get_instance(id)))
            raise Failed(_refusal(error, clean(id), is_held=is_held)) from None
        after = await target.verbs.get_instance(id)
        name = stored_name(after.workflow, after.version)
        return f"a worker that has workflow {name!r} will go on with instance {id!r}"

    done = "retried: workers that have their workflow will go on with them"
    retrying = Action("retry", ["failed", "cancelled"], one, done, instead=_instead)
    act(retrying, Chosen(**chosen), options)


def _instead(id: str) -> str:
    return f"`romancy fork {id}` starts it again from its input, under a new id"


def _refusal(error: NotRetryable, id: str, *, is_held: bool) -> str:
    """Say why an instance can't be retried, and what to do instead. `is_held`: undos that failed block it."""
    status = error.status
    if is_held:
        return f"instance {id!r} is blocked: fix what makes its undos fail, then `romancy resume {id}`"
    if str(error) != str(NotRetryable(instance_id=error.instance_id, status=status)):
        return clean(str(error))  # not because of its status, but of its children
    if status in ("failed", "cancelled"):
        return f"instance {id!r} has undone its steps; `romancy fork {id}` starts it again from its input"
    if status == "completed":
        return f"instance {id!r} is completed; nothing to retry (`romancy fork {id}` runs it again, under a new id)"
    if status == "blocked":
        return f"instance {id!r} is blocked, not failed; fix its code, then `romancy resume {id}`"
    if status == "compensating":
        return f"instance {id!r} is undoing its steps; once it has ended, `romancy fork {id}` starts it again"
    return f"instance {id!r} is {status}; nothing to retry (`romancy why {id}` shows what it waits for)"


@click.command()
@click.argument("id")
@click.option(
    "--at",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    metavar="N",
    help="Keep the history up to entry N, as `romancy show` numbers it; 0: start again from the input.",
)
@click.option("--id", "new_id", metavar="NEW", help="Id of the new instance.")
@target_options
@json_option
def fork(id: str, at: int, new_id: str | None, options: TargetOptions, as_json: bool) -> None:
    """Start a new instance with a part of the history of another.

    What comes after entry N happens anew: calls have other idempotency keys, and events are sent again. The original
    is left as it is, whatever its status. Prints the id of the new instance.
    """

    async def work(target: Target) -> str:
        return (await target.verbs.fork_workflow(id, at=at, new_id=new_id)).instance_id

    copy = options.do(work)
    if as_json:
        print_json({"instance_id": copy})
    else:
        click.echo(copy)
