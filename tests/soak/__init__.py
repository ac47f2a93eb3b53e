"""The soak: random programs of every primitive under all kinds of faults, held against a model.

    make soak                                   # ten minutes, all parts
    ROMANCY_SOAK_MINUTES=60 make soak           # longer
    make soak ARGS=sim                          # one part: sim, sqlite or postgres
    ROMANCY_SOAK_SEED=sim-4711 make soak        # once more what a violation named

The simulation (`sim`) plays engines, storage and time in one thread, by one seed, several hundred faults a second. The
real parts run worker processes on a real database, and kill, pause and cut them off. Their seed decides what is tried,
not what comes of it. ROMANCY_SOAK_LOG names a file for counts and violations.

    programs        tests/property/programs.py: the language and the workflow that runs it
    model           tests/property/model.py: what a program must do
    drawing.py      random programs and events
    callers.py      what callers ask for, and what they are told
    oracle.py       what callers were told, what is stored, and what the model says, held against one another
    loop.py         an event loop whose time passes at once
    storage.py      SQLite without threads, and the journal of what was really stored
    faults.py       a storage that fails
    world.py        the simulation
    proxy.py        a way to PostgreSQL that can be cut
    worker.py       a worker process
    real.py         the real parts
    display.py      how it is going
"""
