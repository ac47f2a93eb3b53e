"""Sealed values: `App(codec=...)`. One wrapper around a storage; without a codec there is none.

    vault.py    seals values with the codec, each for its place, and opens them; the keys of events and waits
    writes.py   seals batches
    reads.py    opens what the engine reads
    catalog.py  opens what people read
    queues.py   opens what queues admit
    emissions.py  seals and opens what is emitted
    sweep.py    removes files of values outside the database that nothing refers to
    storage.py  the wrapper
    copies.py   copies of records, quickly

| sealed | clear |
|---|---|
| instances: input, output, error (not its type) | ids, workflows, statuses, times, attributes, description, queue |
| history: input, payload | operations, kinds, times |
| attempts: error (not its type), progress | operations, counts, times |
| events: data | type, source, id, subject, content type, extensions, who sent it |
| waits: types and filter as they were written | the type, once more, as a key; where the code waits |
| emissions: values | topics, numbers, times |
| requests, views, misfits, schedules' inputs and errors, sinks' errors, the inbox | who did what, names of schedules |

Backends look inside the data of events and the filters of waits, with `VaultOpener`. The keys by which events and waits
find each other are hashed with the index key. It is made at random when a database is first opened with a codec, and
stored there, sealed. Making it is like a migration: what was filed before is filed anew in the same transaction, and
processes without a codec are shut out (`opener.SEALED`), because they could not find or be found any more.
"""

from romancy.storage.sealed.storage import sealed as sealed
from romancy.storage.sealed.vault import Vault as Vault
from romancy.storage.sealed.vault import VaultOpener as VaultOpener
