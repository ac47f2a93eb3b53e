"""The engine on one page.

An instance is either *resident* (in memory) or only a row. Inputs reach it: an activity ended, an event was offered, a
timer fell due, a cancellation was requested. Each input goes into its *inbox*. The scheduler feeds inboxes from plain
loop callbacks: the code gets one input after the other, and runs up to its next wait each time. That is one *step*, and
it results in one *commit*: entries, waits, sent events, the outcome. While the commit is in progress, the instance is
fed nothing. Effects become visible only after the commit: activities start, hooks are called, results are returned.

The *committer* groups the commits of all instances, new starts and accepted events into one transaction at a time. Its
answer says for each item whether it was applied, and contains *offers*: the oldest event that each wait can take. A
refused commit means that another process wrote to the instance. It is then dropped from memory and read again.

Each part gets the parts it works with in its constructor, and knows only parts that come before it. `engine.py`
connects them: read its constructor from top to bottom.

    resident.py     an instance in memory, and the inputs it can get
    step.py         inbox -> code -> commit; pure
    draft.py        the commit that a step puts together
    offers.py       what a step does with events that are offered
    around.py       runs middleware around attempts, starts and sent events
    attempts.py     what a step stores about attempts of activities
    residents.py    the instances in memory or being loaded, and which can be evicted
    inbox.py        the inboxes of residents, and which residents are ready to be fed
    reads.py        reads instances, many at a time
    loader.py       passes inputs to instances; has those read that are not in memory
    committer.py    one transaction after the other; outages, refusals
    emission_head.py where the emissions of an instance stand, and their numbers; pure
    emissions.py    stores what instances emit, beside the group commit
    emission_readers.py shows it to readers, here and from other processes
    items.py        items to be stored: commits, looks, starts, events, requests
    halves.py       splits a batch that is too large; pure
    ahead.py        writes large values outside the database before their items are queued
    laggards.py     items that take too long even alone
    delivery.py     prepares incoming events, and checks which waits their data fits
    waiting_room.py refuses starts in full queues; takes instances that were started without a place there
    slots.py        which attempts run now, and whose turn is next; pure
    stages.py       the stages of an attempt
    turns.py        when a transactional activity can add its result; pure
    transactions.py attempts in transactions, which also store their results
    attempt.py      one attempt that is queued or running
    activities.py   attempts in tasks and threads, retries, timeouts
    custody.py      holds code that may have killed its worker until its turn comes
    evidence.py     what killed the worker: a verdict by numbers; pure
    quarantine.py   decides which suspects can begin now
    inquest.py      after the death of a worker: what ran there, and how it continues
    timers.py       the heap of timers that fall due soon
    exits.py        instances leave memory: ended, blocked, read again, evicted
    revival.py      instances enter memory: new ones, and those that were read
    replays.py      replay in slices, so that a long history does not block the event loop
    recollection.py after a replay, reads what an instance shows of itself
    reopened.py     the first step of an instance that is retried
    children.py     starts children, after the commit that asked for them
    mail.py         what instances tell each other: starts, requests to cancel, ends
    followup.py     everything that happens after a commit
    scheduler.py    feeds the instances that are ready, step by step

    background.py   the loop that runs the rounds of a background duty. The duties:
    leases.py       registers this process as a worker, renews its lease, notices when it is lost
    sweep.py        mail, takeovers, claims, strays; instances that ended elsewhere
    unfit.py        instances that other builds could not follow: tried once by this one
    admission.py    lets queued instances run
    set_backs.py    the rates of queues after a clock was set back
    foresight.py    who is next in a full queue, read ahead
    lost_queues.py  warns about queues that are no longer in the code
    balancing.py    a fair share for every worker
    timer_refresh.py reads the timers that fall due soon
    mover.py        takes in what callers left in transactions of their own
    schedules.py    starts instances when the ticks of schedules are due
    relays.py       the relays of an app
    relay.py        passes the events of one sink on
    relay_window.py what a relay has read and not settled yet; pure
    breaker.py      stops deliveries to a receiver that takes none; pure
    tick_report.py  tells hooks and metrics what became of ticks
    retention.py    deletes instances and events after their retention
    minutes.py      counts what happened in each minute

    timetable.py    changes of schedules, by people and by code
    announcement.py which events start which workflows, for every process
    build.py        a name for the code of this process
    about.py        what a worker says about itself
    outage.py       logs each database outage once
    metrics.py      the engine's counters
    changes.py      what changed, for watchers
    endings.py      callers that wait for an instance to end
    hook_runner.py  runs the user's hooks, and contains their errors
    watchdog.py     warns about workflow code that blocks the event loop
    engine.py       connects the parts, starts and stops them; called by the app
"""

from romancy.engine.engine import Engine

__all__ = ["Engine"]
