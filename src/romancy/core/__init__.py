"""The core on one page: workflow code and its history, without a database, a clock or a thread.

`Instance` runs the code of one instance on a loop of its own (`loop`), which has no I/O and no time. The code asks for
*operations*: calls of activities, waits for events, timers. Each operation is open until the history has an entry that
answers it. Feeding an entry settles its operation and runs the code until nothing is ready; what the code asked for on
the way is taken out as one `Activation`. Replaying is feeding all recorded entries; the code must ask for the same
operations as before (`divergence` says so where it does not).

    instance.py    the code of one instance: fed with entries, asked for what it wants
    replay.py      a history run through today's code, to see where it leads
    loop.py        the deterministic event loop the code runs on
    operations/    what the code can ask for, one file for each kind
    activation.py  what came of feeding: entries, operations opened and closed, events sent, the outcome
    budget.py      how much the code may ask for in one activation
    divergence.py  code that no longer follows its history
    eviction.py    ends code that must leave memory, without letting it act
    history.py     entries, and how events and attempts are packed into them
    inputs.py      what an instance was started with
    signature.py   arguments by name, still callable when the code has changed
    codec.py       values as JSON and back, exactly
    round_trip.py  whether a value comes back equal and of the same types
    failure.py     exceptions as stored facts
    raised.py      which class a recorded exception is today
    filters.py     which event fits which wait, beyond its type
    strict_json.py the one reader of JSON from outside
    events.py      events on their way out: made and checked
    same_event.py  whether two events with one source and id say the same
    registry.py    definitions of workflows and activities, by name
    retry.py       how often and how soon a failed activity is tried again
    model.py       events, statuses, durations
    timestamps.py  times as RFC 3339 writes them
    ids.py         instance ids
    clock.py       the only module that knows the time
    tasks.py       tasks that begin at once
    logs.py        the logger
    throttle.py    messages that may come in floods
    visible.py     text from outside, made safe to show
"""
