"""The engine on one page.

An instance is *resident* (in memory) or a row. Things happen to it: an activity ended, an event was offered, a time
has come, somebody cancelled. Each goes into its *inbox*. The scheduler feeds inboxes from plain loop callbacks; what
the code does in return, up to its next wait, is one *activation*, and an activation is one *commit*: entries, waits,
sent events, the outcome. While it is under way the instance is fed nothing. Only when the commit is in does anything
leave: activities start, hooks hear of it, results are handed out.

The *committer* groups the commits of all instances, new starts and accepted events into one transaction at a time. Its
answer says item by item what was applied, and brings *offers*: the oldest event each wait may take. A refused commit
means somebody else wrote to the instance: it is dropped from memory and read again.

Each part gets the parts it works with in its constructor, and knows only parts that come before it. `engine.py` is
where they meet: read its constructor from top to bottom.

    resident.py     an instance in memory, and the inputs that can reach it
    residents.py    who is in memory, who is on the way, who may be asked to leave
    inbox.py        what happens to residents, and who is ready to be fed
    loader.py       what happens to an instance, in memory or not; reads those that only the database knows
    committer.py    one transaction after the other; outages, refusals
    items.py        what waits to be stored: commits, looks, starts, events, requests
    halves.py       a batch that is too much at once, in parts; pure
    laggards.py     items that take too long even alone
    delivery.py     events on their way in, and whom their data fits
    custody.py      code that may have killed its worker, held until it is its turn
    inquest.py      after the death of a worker: what was running there, and what becomes of it
    evidence.py     who killed the worker: a verdict by numbers; pure
    quarantine.py   which suspects may begin now
    activities.py   attempts in tasks and threads, retries, timeouts
    timers.py       the heap of what falls due
    exits.py        the way out of memory: ended, blocked, read again, evicted
    revival.py      the way into memory: new ones, and those that were read
    replays.py      replay in slices: a long history does not block the event loop
    followup.py     what happens once a commit is in
    step.py         inbox -> code -> commit; pure
    scheduler.py    feeds those who are ready, step by step

    background.py   a duty in the background: rounds of work, written once. The duties:
    leases.py       this process registers as a worker, renews that, and hears when it has lost it
    sweep.py        mail, takeovers, claims, strays; who ended elsewhere
    balancing.py    a fair share for every worker
    timer_refresh.py reads what falls due soon
    retention.py    deletes what ended long ago

    announcement.py which events start which workflows, for every process
    outage.py       one trouble with the database, told once
    metrics.py      what is counted
    changes.py      what changed, for those who watch
    endings.py      callers that wait for an instance to end
    hook_runner.py  runs the hooks of the user, and contains their errors
    watchdog.py     warns about workflow code that blocks the event loop
    engine.py       composes the parts, starts and stops them; what the app calls
"""

from romancy.engine.engine import Engine

__all__ = ["Engine"]
