-- min_reader: 1
-- Times are integer microseconds UTC (no session time zone can bend them), payloads are bytes, ids are compared byte by
-- byte whatever the database's collation. Runs with the schema first in the search path.
-- Order of acceptance is (xid, seq). seq alone would not do: it is drawn before the commit, so an event with a lower
-- one may become visible later. An event not visible yet has an xid at or above the snapshot's xmin, and so comes after
-- every event below that.

CREATE TABLE workers (
  id text COLLATE "C" PRIMARY KEY,  -- fresh for every registration, never used again
  host text NOT NULL,
  until bigint NOT NULL,            -- the lease; no key column, so that renewing does not wait for the fence
  started_at bigint NOT NULL,
  has_session boolean NOT NULL      -- holds a session lock while it lives
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- Workers that are gone: what they owned is free to be claimed. Clean ones stopped by themselves, or only paused.
CREATE TABLE orphans (id text COLLATE "C" PRIMARY KEY, at bigint NOT NULL, clean boolean NOT NULL);

CREATE TABLE instances (
  id text COLLATE "C" PRIMARY KEY,
  workflow text COLLATE "C" NOT NULL,
  generation integer NOT NULL DEFAULT 0,
  status smallint NOT NULL,
  owner text COLLATE "C",
  version bigint NOT NULL DEFAULT 0,
  token bytea NOT NULL,             -- of the batch that last wrote to it
  birth bytea NOT NULL,             -- of the batch that created it
  born pg_snapshot NOT NULL,        -- events visible in it were there before the instance
  trigger_xid xid8,                 -- the event that started it, if one did: it and those before it in its batch are read
  trigger_seq bigint,
  parent text COLLATE "C",
  input bytea NOT NULL,
  input_kind smallint NOT NULL,
  output bytea,
  error bytea,
  deadline bigint,
  description text,
  created_at bigint NOT NULL,
  updated_at bigint NOT NULL,
  finished_at bigint
) WITH (fillfactor = 80);
CREATE INDEX instances_free ON instances (workflow, status, id) WHERE owner IS NULL AND status < 9;
CREATE INDEX instances_owner ON instances (owner, status, id) WHERE status < 9;
CREATE INDEX instances_created ON instances (created_at, id);
CREATE INDEX instances_status ON instances (status, created_at, id);
CREATE INDEX instances_finished ON instances (finished_at) WHERE finished_at IS NOT NULL;

CREATE TABLE history (
  instance text COLLATE "C" NOT NULL,
  n bigint NOT NULL,
  kind smallint NOT NULL,
  op text COLLATE "C" NOT NULL,
  at bigint NOT NULL,
  input bytea,
  payload bytea,
  event bigint,
  PRIMARY KEY (instance, n)
);

CREATE TABLE waits (
  instance text COLLATE "C" NOT NULL,
  op text COLLATE "C" NOT NULL,
  due_at bigint,
  born pg_snapshot,                 -- since="now": events visible in it were there before the wait
  since bigint,                     -- since a time: accepted at or after it. Both null: since the instance's beginning
  model text NOT NULL,
  spec bytea NOT NULL,              -- empty for a timer
  location text NOT NULL,
  created_at bigint NOT NULL,
  PRIMARY KEY (instance, op)
) WITH (autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX waits_due ON waits (due_at, instance, op) WHERE due_at IS NOT NULL;

-- One row per type of a wait. Shape 0 is "no filter", -1 a filter without an index; key is the hash of its values.
CREATE TABLE wait_keys (
  type text COLLATE "C" NOT NULL,
  shape integer NOT NULL,
  key bytea NOT NULL,
  instance text COLLATE "C" NOT NULL,
  op text COLLATE "C" NOT NULL,
  PRIMARY KEY (type, shape, key, instance, op)
) WITH (autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX wait_keys_wait ON wait_keys (instance, op);

-- Instances that opened waits and have not looked for events since: whoever claims them does. Deleted by the look.
CREATE TABLE unlooked (instance text COLLATE "C" PRIMARY KEY)
  WITH (autovacuum_vacuum_scale_factor = 0.02);

CREATE TABLE events (
  xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
  seq bigint PRIMARY KEY,
  source text COLLATE "C" NOT NULL,
  id text COLLATE "C" NOT NULL,
  type text COLLATE "C" NOT NULL,
  subject text COLLATE "C",
  time bigint,
  target text COLLATE "C",
  attrs bytea,                      -- datacontenttype, dataschema, extensions as JSON; null where there are none
  data bytea,
  token bytea NOT NULL,
  accepted_at bigint NOT NULL,
  expires_at bigint,
  UNIQUE (source, id)
);
CREATE SEQUENCE event_numbers;
CREATE INDEX events_type ON events (type, target, xid, seq);
CREATE INDEX events_accepted ON events (accepted_at);
CREATE INDEX events_expires ON events (expires_at) WHERE expires_at IS NOT NULL;

-- Events that nobody has looked for waits for yet. Whoever accepted them does, or a sweep if it died meanwhile.
CREATE TABLE undispatched (
  event bigint PRIMARY KEY,
  seen pg_snapshot NOT NULL,        -- what was there before the event: the beginning of the instances it starts
  unfit text NOT NULL,              -- workflows it does not start, as JSON
  at bigint NOT NULL                -- by the database's clock
) WITH (autovacuum_vacuum_scale_factor = 0.02);

-- The sets of fields that waits for a type filter by, and every event's key for each of them.
CREATE TABLE shapes (
  id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, type text COLLATE "C" NOT NULL, fields text COLLATE "C" NOT NULL,
  ready boolean NOT NULL DEFAULT false, UNIQUE (type, fields)
);
CREATE TABLE event_keys (
  shape integer NOT NULL, key bytea NOT NULL, xid xid8 NOT NULL, seq bigint NOT NULL,
  PRIMARY KEY (shape, key, xid, seq)
);
CREATE INDEX event_keys_event ON event_keys (seq);

-- Hints that an event may fit an instance: added by whoever dispatches, deleted by the owner.
CREATE TABLE deliveries (
  instance text COLLATE "C" NOT NULL, event bigint NOT NULL, PRIMARY KEY (instance, event)
) WITH (autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX deliveries_event ON deliveries (event);

CREATE TABLE consumed (
  instance text COLLATE "C" NOT NULL, event bigint NOT NULL, op text COLLATE "C" NOT NULL,
  PRIMARY KEY (instance, event)
);
CREATE INDEX consumed_event ON consumed (event);

-- Everything up to (xid, seq) that matches (type, shape, key) is consumed by the instance, or did not fit the model.
CREATE TABLE marks (
  instance text COLLATE "C" NOT NULL, type text COLLATE "C" NOT NULL, shape integer NOT NULL, key bytea NOT NULL,
  model text COLLATE "C" NOT NULL, xid xid8 NOT NULL, seq bigint NOT NULL,
  PRIMARY KEY (instance, type, shape, key, model)
);

CREATE TABLE misfits (
  instance text COLLATE "C" NOT NULL, model text COLLATE "C" NOT NULL, event bigint NOT NULL,
  op text COLLATE "C" NOT NULL, error text NOT NULL, PRIMARY KEY (instance, model, event)
);

CREATE TABLE requests (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, instance text COLLATE "C" NOT NULL, kind smallint NOT NULL,
  payload bytea NOT NULL, at bigint NOT NULL,
  token bytea NOT NULL,             -- of the batch that brought it, and its place there: a repeated one is known by it
  n integer NOT NULL, UNIQUE (token, n)
);
CREATE INDEX requests_instance ON requests (instance);

CREATE TABLE attempts (
  instance text COLLATE "C" NOT NULL, op text COLLATE "C" NOT NULL, n integer NOT NULL, first_at bigint NOT NULL,
  next_due bigint, error bytea, progress bytea, crashes integer NOT NULL, started boolean NOT NULL,
  PRIMARY KEY (instance, op)
);
CREATE INDEX attempts_due ON attempts (next_due, instance, op) WHERE next_due IS NOT NULL;

CREATE TABLE triggers (
  type text COLLATE "C" NOT NULL, workflow text COLLATE "C" NOT NULL, timeout bigint, PRIMARY KEY (type, workflow)
);
