-- min_reader: 8
-- Tables and columns for the transactions of callers, schedules, queues and events kept for open instances.

-- Starts and events that callers left in transactions of their own. A worker moves them on in the order of their ids.
-- Nothing here is unique except the id: instances and events are created only by the move, so nobody has to wait for a
-- caller's open transaction. `seen` is the beginning of the instance. A start that is refused stays here, with the reason.
CREATE TABLE inbox (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  kind smallint NOT NULL,           -- 1: an event, 2: a start
  at bigint NOT NULL,
  source text COLLATE "C", event text COLLATE "C", type text COLLATE "C", subject text COLLATE "C", time bigint,
  target text COLLATE "C", attrs bytea, expires_at bigint,
  instance text COLLATE "C", workflow text COLLATE "C", input_kind smallint, deadline bigint,
  options text,                     -- further values of a start, as JSON
  data bytea,                       -- of the event, or the input of the instance
  seen pg_snapshot NOT NULL DEFAULT pg_current_snapshot(),
  refused text, refused_at bigint,
  CHECK (kind = 1 AND instance IS NULL AND num_nulls(source, event, type) = 0
    OR kind = 2 AND num_nulls(instance, workflow, input_kind, data) = 0)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
CREATE INDEX inbox_todo ON inbox (id) WHERE refused IS NULL;
CREATE INDEX inbox_refused ON inbox (refused_at) WHERE refused IS NOT NULL;

-- Which events instances of a workflow may take, so that these are kept for them; see storage/interests.py. `next` is a
-- workflow that an instance continued as, and `type` is empty then.
CREATE TABLE interests (workflow text COLLATE "C" NOT NULL, type text COLLATE "C" NOT NULL,
  next text COLLATE "C" NOT NULL DEFAULT '', kind smallint NOT NULL, since bigint NOT NULL,
  PRIMARY KEY (workflow, type, next));
-- Events of a type that were removed although an open instance might have taken them: those accepted before a time.
CREATE TABLE cuts (type text COLLATE "C" PRIMARY KEY, upto bigint NOT NULL);
-- Only for statements that ask for it by the same condition: others must not choose it because of a status.
CREATE INDEX instances_oldest ON instances (workflow, created_at) WHERE status + 0 <> 10;
CREATE INDEX events_age ON events (type, accepted_at) WHERE target IS NULL AND expires_at IS NULL;
CREATE INDEX events_addressed ON events (seq) WHERE target IS NOT NULL;
CREATE INDEX events_expiring ON events (expires_at) WHERE expires_at IS NOT NULL AND data IS NOT NULL;

-- Schedules. `next_at` is the next tick, `due_at` when it is due; ticks up to `done_at` are taken care of. `stamp` changes
-- with every write, and every write that was decided on by what was read names the stamp that was read. `former`: times
-- that were changed while ticks were overdue, with the time of the change: [[cron, every, ..., until], ...].
CREATE TABLE schedules (
  name text COLLATE "C" PRIMARY KEY,
  workflow text COLLATE "C" NOT NULL,
  input bytea NOT NULL, input_kind smallint NOT NULL, timeout bigint,
  attributes text,                    -- of the instances it starts: {name: value as JSON}
  cron text, every bigint, timezone text NOT NULL, starts_at bigint, ends_at bigint,
  spread bigint NOT NULL, catch_up text NOT NULL, overlap text NOT NULL,
  next_at bigint, due_at bigint, done_at bigint, last_at bigint, last_instance text COLLATE "C",
  paused boolean NOT NULL, declared boolean NOT NULL, started bigint NOT NULL, skipped bigint NOT NULL, error text,
  stamp bytea NOT NULL,
  former text,
  queue text COLLATE "C", queue_key text COLLATE "C", priority integer  -- where the instances it starts wait
);
CREATE INDEX schedules_due ON schedules (due_at, name) WHERE NOT paused;
-- The schedule that started an instance, and the tick.
ALTER TABLE instances ADD COLUMN schedule text COLLATE "C", ADD COLUMN scheduled_at bigint;
CREATE INDEX instances_scheduled ON instances (schedule, (finished_at + 0)) WHERE schedule IS NOT NULL;

-- Queues. Where an instance waits, and whether it holds a slot, is in its own row: status 8 is queued, any other status
-- below 10 holds a slot. Older libraries would run queued instances at once. The columns take no time, and both indexes
-- are empty at first.

ALTER TABLE instances
  ADD COLUMN queue text COLLATE "C",
  ADD COLUMN queue_key text COLLATE "C",      -- '' for none
  ADD COLUMN priority integer;
CREATE INDEX instances_queued ON instances (queue, queue_key, priority DESC, created_at, id) WHERE status = 8;
CREATE INDEX instances_slots ON instances (queue, queue_key) WHERE queue IS NOT NULL AND status <> 8 AND status < 10;
-- Every admission raises the version of its queue, and is void if another one came before it.
CREATE TABLE queues (name text COLLATE "C" PRIMARY KEY, version bigint NOT NULL,
  turn text COLLATE "C",                      -- the key that was served last
  reserved bigint NOT NULL                    -- the time up to which the rate is used up
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
-- The same for the rates of single keys, until that time.
CREATE TABLE queue_keys (queue text COLLATE "C" NOT NULL, key text COLLATE "C" NOT NULL, reserved bigint NOT NULL,
  PRIMARY KEY (queue, key));
CREATE INDEX queue_keys_reserved ON queue_keys (reserved);
