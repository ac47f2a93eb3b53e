-- min_reader: 1
-- Times are integer microseconds UTC, payloads are bytes, ids are compared byte by byte.

CREATE TABLE workers (
  id TEXT PRIMARY KEY,              -- fresh for every registration, never used again
  host TEXT NOT NULL,
  until INTEGER NOT NULL,           -- the lease; the only column that is ever updated
  started_at INTEGER NOT NULL
) WITHOUT ROWID;

-- Workers that are gone but owned instances: those instances are free to be claimed. Clean ones stopped by themselves.
CREATE TABLE orphans (id TEXT PRIMARY KEY, at INTEGER NOT NULL, clean INTEGER NOT NULL) WITHOUT ROWID;

CREATE TABLE instances (
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
CREATE INDEX instances_free ON instances (workflow, status, id) WHERE owner IS NULL AND status < 9;
CREATE INDEX instances_owner ON instances (owner, status) WHERE status < 9;
CREATE INDEX instances_created ON instances (created_at, id);
CREATE INDEX instances_status ON instances (status, created_at, id);
CREATE INDEX instances_finished ON instances (finished_at) WHERE finished_at IS NOT NULL;

CREATE TABLE history (
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

CREATE TABLE waits (
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
CREATE INDEX waits_due ON waits (due_at, instance, op) WHERE due_at IS NOT NULL;

-- One row per type of a wait. Shape 0 is "no filter"; key is the hash of the filter's values.
CREATE TABLE wait_keys (
  type TEXT NOT NULL,
  shape INTEGER NOT NULL,
  key BLOB NOT NULL,
  instance TEXT NOT NULL,
  op TEXT NOT NULL,
  PRIMARY KEY (type, shape, key, instance, op)
) WITHOUT ROWID;
CREATE INDEX wait_keys_wait ON wait_keys (instance, op);

CREATE TABLE events (
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
CREATE INDEX events_type ON events (type, target, seq);
CREATE INDEX events_accepted ON events (accepted_at);
CREATE INDEX events_expires ON events (expires_at) WHERE expires_at IS NOT NULL;

-- The sets of fields that waits for a type filter by, and every event's key for each of them.
CREATE TABLE shapes (id INTEGER PRIMARY KEY, type TEXT NOT NULL, fields TEXT NOT NULL, UNIQUE (type, fields));
CREATE TABLE event_keys (
  shape INTEGER NOT NULL, key BLOB NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY (shape, key, seq)
) WITHOUT ROWID;
CREATE INDEX event_keys_event ON event_keys (seq);

-- Hints that an event may fit an instance: added by whoever accepts, deleted by the owner.
CREATE TABLE deliveries (instance TEXT NOT NULL, event INTEGER NOT NULL, PRIMARY KEY (instance, event)) WITHOUT ROWID;
CREATE INDEX deliveries_event ON deliveries (event);

CREATE TABLE consumed (
  instance TEXT NOT NULL, event INTEGER NOT NULL, op TEXT NOT NULL, PRIMARY KEY (instance, event)
) WITHOUT ROWID;
CREATE INDEX consumed_event ON consumed (event);

-- Everything up to seq that matches (type, shape, key) is consumed by the instance, or did not fit the model.
CREATE TABLE marks (
  instance TEXT NOT NULL, type TEXT NOT NULL, shape INTEGER NOT NULL, key BLOB NOT NULL, model TEXT NOT NULL,
  seq INTEGER NOT NULL, PRIMARY KEY (instance, type, shape, key, model)
) WITHOUT ROWID;

CREATE TABLE misfits (
  instance TEXT NOT NULL, model TEXT NOT NULL, event INTEGER NOT NULL, op TEXT NOT NULL, error TEXT NOT NULL,
  PRIMARY KEY (instance, model, event)
) WITHOUT ROWID;

CREATE TABLE requests (
  id INTEGER PRIMARY KEY AUTOINCREMENT, instance TEXT NOT NULL, kind INTEGER NOT NULL, payload BLOB NOT NULL,
  at INTEGER NOT NULL
);
CREATE INDEX requests_instance ON requests (instance);

CREATE TABLE attempts (
  instance TEXT NOT NULL, op TEXT NOT NULL, n INTEGER NOT NULL, first_at INTEGER NOT NULL, next_due INTEGER,
  error BLOB, progress BLOB, crashes INTEGER NOT NULL, started INTEGER NOT NULL, PRIMARY KEY (instance, op)
) WITHOUT ROWID;
CREATE INDEX attempts_due ON attempts (next_due, instance, op) WHERE next_due IS NOT NULL;

CREATE TABLE triggers (
  type TEXT NOT NULL, workflow TEXT NOT NULL, timeout INTEGER, PRIMARY KEY (type, workflow)
) WITHOUT ROWID;
