"""The core on one page: workflow code and its history, without a database, a clock or a thread.

`Instance` runs the code of one instance on its own event loop (`loop`), which has no I/O and no clock. The code asks
for *operations*: activity calls, event waits, timers. An operation is open until an entry in the history answers it.
Feeding an entry settles its operation and runs the code until nothing is ready. Everything the code asked for on the
way becomes one `Asked`. A replay feeds all recorded entries, and the code must ask for the same operations as before;
if it does not, `divergence` reports it.

    instance.py    the code of one instance, driven by its history
    open_operations.py  what its code waits for
    replay.py      runs a history through the current code, to see where it leads
    compensation.py what an instance owes to undo, and how that is undone
    scope.py       the `saga` blocks of a workflow
    body.py        runs the user's function, from its input to its result
    loop.py        the deterministic event loop the code runs on
    anyio_backend.py makes anyio deterministic on that loop
    operations/    what the code can ask for, one file for each kind
    run.py         one run: its number, the ids of its operations, the length of its history
    continuation.py what an instance goes on with when it continues as new
    offspring.py   the children it asks to cancel, or starts as it ends
    outcome.py     what the code asked for, and how it ended
    culprits.py    the entries that led to the end of an instance
    dropped.py     which entries still count after a retry, and what became of the others
    given_back.py  events that a retried instance can take once more
    interests.py   which events a workflow may still take
    retrial.py     how an instance goes on that failed or was cancelled, and is retried
    budget.py      how much the code may ask for in one activation
    divergence.py  errors for code that no longer follows its history
    patches.py     which way a run takes where its code was changed
    published.py   what an instance shows of itself: its view and its attributes
    emitted.py     checks and encodes what is emitted
    attributes.py  checks and encodes attributes
    declared_attributes.py attributes that the arguments of a start give
    eviction.py    stops code that must leave memory, without letting it act
    history.py     entries, and how events and attempts are packed into them
    inputs.py      the input an instance was started with
    signature.py   arguments by name, still usable after the code has changed
    step_input.py  the input of a step, as JSON
    codec.py       values to JSON and back, exactly
    round_trip.py  whether a value comes back equal and with the same types
    failure.py     exceptions in stored form
    raised.py      finds the current class of a recorded exception
    payloads.py    what a codec for stored values has to be
    redaction.py   what people do not see of values
    filters.py     which event fits which wait, beyond its type
    strict_json.py reads JSON from outside, strictly
    events.py      creates and checks outgoing events
    new_events.py  events to be sent, as users write them
    actor.py       who does something, for the record
    patterns.py    patterns of event types
    questions.py   questions to people, as they are stored
    tickets.py     the signed part of a link, with which a person answers
    forms.py       a type as a form, and what was sent with it
    answers.py     answers as JSON: whether they fit what was asked
    same_event.py  whether two events with the same source and id have the same content
    queues.py      queues, their limits, and the places of instances in them
    places.py      where the instance of a start waits
    admission.py   which queued instances are admitted next
    registry.py    definitions of workflows and activities, by name
    versions.py    versions of a workflow, in its stored name
    retry.py       how often and how soon a failed activity is retried
    sinks.py       sinks as the engine sees them
    cloudevents.py events as requests: CloudEvents over HTTP
    schedules.py   when schedules tick, and what becomes of ticks that are due
    token_usage.py tokens that recorded results say they used
    model.py       events, statuses, durations
    timestamps.py  RFC 3339 times
    durations.py   formats durations for people
    ids.py         instance ids and other names
    clock.py       the only module that reads the clock
    garbage.py     the only module that changes when garbage is collected
    tasks.py       tasks that start immediately
    sequences.py   sequences that are mostly empty
    logs.py        the logger
    throttle.py    limits repeated log messages
    visible.py     makes untrusted text safe to show
"""
