-- min_reader: 8
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
-- Where the instances of a schedule wait.
ALTER TABLE schedules ADD COLUMN queue text COLLATE "C", ADD COLUMN queue_key text COLLATE "C", ADD COLUMN priority integer;
