-- min_reader: 6
-- Children, continuing as new, and code that changes. Libraries without these would show the history of earlier runs as
-- part of the current one, and never tell a parent that its child ended.

-- The operation of the parent that started it.
ALTER TABLE instances ADD COLUMN parent_op TEXT;
-- Entries up to this one are of earlier runs.
ALTER TABLE instances ADD COLUMN base INTEGER NOT NULL DEFAULT 0;
-- When the current run began. Null: with the instance.
ALTER TABLE instances ADD COLUMN began_at INTEGER;
-- Of a blocked instance: the builds whose code did not follow its history.
ALTER TABLE instances ADD COLUMN builds TEXT;
-- Of a request to a parent: the operation whose child ended.
ALTER TABLE requests ADD COLUMN op TEXT;
CREATE INDEX instances_parent ON instances (parent, created_at, id) WHERE parent IS NOT NULL;
CREATE INDEX instances_unfit ON instances (workflow, id) WHERE status = 9 AND builds IS NOT NULL;
