-- min_reader: 8
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
CREATE INDEX romancy.queue_keys_reserved ON romancy.queue_keys (reserved);
-- Where the instances of a schedule wait.
ALTER TABLE romancy.schedules ADD COLUMN queue TEXT;
ALTER TABLE romancy.schedules ADD COLUMN queue_key TEXT;
ALTER TABLE romancy.schedules ADD COLUMN priority INTEGER
