"""The soak: random programs of every primitive under all kinds of faults, held against a model, for as long as you like.

    make soak                                   # ten minutes, all parts
    ROMANCY_SOAK_MINUTES=60 make soak           # longer
    make soak ARGS=sim                          # one part: sim, sqlite or postgres
    ROMANCY_SOAK_SEED=sim-4711 make soak        # once more what a violation named

The simulation (`sim`) plays engines, storage and time in one thread, by one seed, about a thousand faults a second. The
real parts run worker processes on a real database, and kill, stop and cut them off.

    programs        tests/property/programs.py: the language and the workflow that runs it
    model           tests/property/model.py: what a program must do
    drawing.py      random programs and events
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
