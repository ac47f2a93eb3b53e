-- min_reader: 1
-- Times are integer microseconds UTC, payloads are bytes, ids are compared byte by byte.

CREATE TABLE romancy.workers (
  id TEXT PRIMARY KEY,              -- fresh for every registration, never used again
  host TEXT NOT NULL,
  until INTEGER NOT NULL,           -- the lease; the only column that is ever updated
  started_at INTEGER NOT NULL
) WITHOUT ROWID;

-- Workers that are gone but owned instances: those instances are free to be claimed. Clean ones stopped by themselves.
CREATE TABLE romancy.orphans (id TEXT PRIMARY KEY, at INTEGER NOT NULL, clean INTEGER NOT NULL) WITHOUT ROWID;

CREATE TABLE romancy.instances (
  id TEXT NOT NULL UNIQUE,
  workflow TEXT NOT NULL,
  generation INTEGER NOT NULL DEFAULT 0,
  status INTEGER NOT NULL,
  owner TEXT,
  version INTEGER NOT NULL DEFAULT 0,
  token BLOB NOT NULL,              -- of the batch that last wrote to it
  birth BLOB NOT NULL,              -- of the batch that created it
  since INTEGER NOT NULL,           -- events up to this one were there before the instance
  parent TEXT,
  input BLOB NOT NULL,
  input_kind INTEGER NOT NULL,
  output BLOB,
  error BLOB,
  deadline INTEGER,
  description TEXT,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  finished_at INTEGER
);
CREATE INDEX romancy.instances_free ON romancy.instances (workflow, status, id) WHERE owner IS NULL AND status < 9;
CREATE INDEX romancy.instances_owner ON romancy.instances (owner, status) WHERE status < 9;
CREATE INDEX romancy.instances_created ON romancy.instances (created_at, id);
CREATE INDEX romancy.instances_status ON romancy.instances (status, created_at, id);
CREATE INDEX romancy.instances_finished ON romancy.instances (finished_at) WHERE finished_at IS NOT NULL;

CREATE TABLE romancy.history (
  instance TEXT NOT NULL,
  n INTEGER NOT NULL,
  kind INTEGER NOT NULL,
  op TEXT NOT NULL,
  at INTEGER NOT NULL,
  input BLOB,
  payload BLOB,
  event INTEGER,
  PRIMARY KEY (instance, n)
) WITHOUT ROWID;

CREATE TABLE romancy.waits (
  instance TEXT NOT NULL,
  op TEXT NOT NULL,
  due_at INTEGER,
  since INTEGER,                    -- only for waits that do not reach back to the instance's beginning
  model TEXT NOT NULL,
  spec BLOB NOT NULL,               -- empty for a timer
  location TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (instance, op)
) WITHOUT ROWID;
CREATE INDEX romancy.waits_due ON romancy.waits (due_at, instance, op) WHERE due_at IS NOT NULL;

-- One row per type of a wait. Shape 0 is "no filter"; key is the hash of the filter's values.
CREATE TABLE romancy.wait_keys (
  type TEXT NOT NULL,
  shape INTEGER NOT NULL,
  key BLOB NOT NULL,
  instance TEXT NOT NULL,
  op TEXT NOT NULL,
  PRIMARY KEY (type, shape, key, instance, op)
) WITHOUT ROWID;
CREATE INDEX romancy.wait_keys_wait ON romancy.wait_keys (instance, op);

CREATE TABLE romancy.events (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  source TEXT NOT NULL,
  id TEXT NOT NULL,
  type TEXT NOT NULL,
  subject TEXT,
  time INTEGER,
  target TEXT,
  attrs BLOB,                       -- datacontenttype, dataschema, extensions as JSON; NULL where there are none
  data BLOB,
  token BLOB NOT NULL,
  accepted_at INTEGER NOT NULL,
  expires_at INTEGER,
  UNIQUE (source, id)
);
CREATE INDEX romancy.events_type ON romancy.events (type, target, seq);
CREATE INDEX romancy.events_accepted ON romancy.events (accepted_at);
CREATE INDEX romancy.events_expires ON romancy.events (expires_at) WHERE expires_at IS NOT NULL;

-- The sets of fields that waits for a type filter by, and every event's key for each of them.
CREATE TABLE romancy.shapes (id INTEGER PRIMARY KEY, type TEXT NOT NULL, fields TEXT NOT NULL, UNIQUE (type, fields));
CREATE TABLE romancy.event_keys (
  shape INTEGER NOT NULL, key BLOB NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY (shape, key, seq)
) WITHOUT ROWID;
CREATE INDEX romancy.event_keys_event ON romancy.event_keys (seq);

-- Hints that an event may fit an instance: added by whoever accepts, deleted by the owner.
CREATE TABLE romancy.deliveries (instance TEXT NOT NULL, event INTEGER NOT NULL, PRIMARY KEY (instance, event)) WITHOUT ROWID;
CREATE INDEX romancy.deliveries_event ON romancy.deliveries (event);

CREATE TABLE romancy.consumed (
  instance TEXT NOT NULL, event INTEGER NOT NULL, op TEXT NOT NULL, PRIMARY KEY (instance, event)
) WITHOUT ROWID;
CREATE INDEX romancy.consumed_event ON romancy.consumed (event);

-- Everything up to seq that matches (type, shape, key) is consumed by the instance, or did not fit the model.
CREATE TABLE romancy.marks (
  instance TEXT NOT NULL, type TEXT NOT NULL, shape INTEGER NOT NULL, key BLOB NOT NULL, model TEXT NOT NULL,
  seq INTEGER NOT NULL, PRIMARY KEY (instance, type, shape, key, model)
) WITHOUT ROWID;

CREATE TABLE romancy.misfits (
  instance TEXT NOT NULL, model TEXT NOT NULL, event INTEGER NOT NULL, op TEXT NOT NULL, error TEXT NOT NULL,
  PRIMARY KEY (instance, model, event)
) WITHOUT ROWID;

CREATE TABLE romancy.requests (
  id INTEGER PRIMARY KEY AUTOINCREMENT, instance TEXT NOT NULL, kind INTEGER NOT NULL, payload BLOB NOT NULL,
  at INTEGER NOT NULL
);
CREATE INDEX romancy.requests_instance ON romancy.requests (instance);

CREATE TABLE romancy.attempts (
  instance TEXT NOT NULL, op TEXT NOT NULL, n INTEGER NOT NULL, first_at INTEGER NOT NULL, next_due INTEGER,
  error BLOB, progress BLOB, crashes INTEGER NOT NULL, started INTEGER NOT NULL, PRIMARY KEY (instance, op)
) WITHOUT ROWID;
CREATE INDEX romancy.attempts_due ON romancy.attempts (next_due, instance, op) WHERE next_due IS NOT NULL;

CREATE TABLE romancy.triggers (
  type TEXT NOT NULL, workflow TEXT NOT NULL, timeout INTEGER, PRIMARY KEY (type, workflow)
) WITHOUT ROWID;
