-- min_reader: 8
-- Tables and columns for the transactions of callers, schedules, queues and events kept for open instances.

-- Starts and events that callers left in transactions of their own. A worker moves them on. `seen` is the last event
-- before the instance. A start that is refused stays here, with the reason.
CREATE TABLE romancy.inbox (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  kind INTEGER NOT NULL,            -- 1: an event, 2: a start
  at INTEGER NOT NULL,
  source TEXT, event TEXT, type TEXT, subject TEXT, time INTEGER, target TEXT, attrs BLOB, expires_at INTEGER,
  instance TEXT, workflow TEXT, input_kind INTEGER, deadline INTEGER,
  options TEXT,                     -- further values of a start, as JSON
  data BLOB,                        -- of the event, or the input of the instance
  seen INTEGER,
  refused TEXT, refused_at INTEGER,
  CHECK (kind = 1 AND instance IS NULL AND source IS NOT NULL AND event IS NOT NULL AND type IS NOT NULL
    OR kind = 2 AND instance IS NOT NULL AND workflow IS NOT NULL AND input_kind IS NOT NULL AND data IS NOT NULL)
);
CREATE INDEX romancy.inbox_todo ON romancy.inbox (id) WHERE refused IS NULL;
CREATE INDEX romancy.inbox_refused ON romancy.inbox (refused_at) WHERE refused IS NOT NULL;

-- Which events instances of a workflow may take, so that these are kept for them; see storage/interests.py. `next` is a
-- workflow that an instance continued as, and `type` is empty then.
CREATE TABLE romancy.interests (workflow TEXT NOT NULL, type TEXT NOT NULL, next TEXT NOT NULL DEFAULT '',
  kind INTEGER NOT NULL, since INTEGER NOT NULL, PRIMARY KEY (workflow, type, next)) WITHOUT ROWID;
-- Events of a type that were removed although an open instance might have taken them: those accepted before a time.
CREATE TABLE romancy.cuts (type TEXT PRIMARY KEY, upto INTEGER NOT NULL) WITHOUT ROWID;
-- Only for statements that ask for it by the same condition: others must not choose it because of a status.
CREATE INDEX romancy.instances_oldest ON romancy.instances (workflow, created_at) WHERE status + 0 <> 10;
CREATE INDEX romancy.events_age ON romancy.events (type, accepted_at) WHERE target IS NULL AND expires_at IS NULL;
CREATE INDEX romancy.events_addressed ON romancy.events (seq) WHERE target IS NOT NULL;
CREATE INDEX romancy.events_expiring ON romancy.events (expires_at) WHERE expires_at IS NOT NULL AND data IS NOT NULL;

-- Schedules. `next_at` is the next tick, `due_at` when it is due; ticks up to `done_at` are taken care of. `stamp` changes
-- with every write, and every write that was decided on by what was read names the stamp that was read. `former`: times
-- that were changed while ticks were overdue, with the time of the change: [[cron, every, ..., until], ...].
CREATE TABLE romancy.schedules (
  name TEXT PRIMARY KEY,
  workflow TEXT NOT NULL,
  input BLOB NOT NULL, input_kind INTEGER NOT NULL, timeout INTEGER,
  attributes TEXT,                    -- of the instances it starts: {name: value as JSON}
  cron TEXT, every INTEGER, timezone TEXT NOT NULL, starts_at INTEGER, ends_at INTEGER,
  spread INTEGER NOT NULL, catch_up TEXT NOT NULL, overlap TEXT NOT NULL,
  next_at INTEGER, due_at INTEGER, done_at INTEGER, last_at INTEGER, last_instance TEXT,
  paused INTEGER NOT NULL, declared INTEGER NOT NULL, started INTEGER NOT NULL, skipped INTEGER NOT NULL, error TEXT,
  stamp BLOB NOT NULL,
  former TEXT,
  queue TEXT, queue_key TEXT, priority INTEGER  -- where the instances it starts wait
) WITHOUT ROWID;
CREATE INDEX romancy.schedules_due ON romancy.schedules (due_at, name) WHERE NOT paused;
-- The schedule that started an instance, and the tick.
ALTER TABLE romancy.instances ADD COLUMN schedule TEXT;
ALTER TABLE romancy.instances ADD COLUMN scheduled_at INTEGER;
CREATE INDEX romancy.instances_scheduled ON romancy.instances (schedule, (finished_at + 0)) WHERE schedule IS NOT NULL;

-- Queues. Where an instance waits, and whether it holds a slot, is in its own row: status 8 is queued, any other status
-- below 10 holds a slot. Older libraries would run queued instances at once.

ALTER TABLE romancy.instances ADD COLUMN queue TEXT;
ALTER TABLE romancy.instances ADD COLUMN queue_key TEXT;
ALTER TABLE romancy.instances ADD COLUMN priority INTEGER;
CREATE INDEX romancy.instances_queued ON romancy.instances (queue, queue_key, priority DESC, created_at, id) WHERE status = 8;
CREATE INDEX romancy.instances_slots ON romancy.instances (queue, queue_key)
  WHERE queue IS NOT NULL AND status <> 8 AND status < 10;
CREATE TABLE romancy.queues (name TEXT PRIMARY KEY, version INTEGER NOT NULL, turn TEXT, reserved INTEGER NOT NULL)
  WITHOUT ROWID;
CREATE TABLE romancy.queue_keys (queue TEXT NOT NULL, key TEXT NOT NULL, reserved INTEGER NOT NULL,
  PRIMARY KEY (queue, key)) WITHOUT ROWID;
CREATE INDEX romancy.queue_keys_reserved ON romancy.queue_keys (reserved)
