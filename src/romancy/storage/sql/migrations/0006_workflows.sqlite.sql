-- min_reader: 6
-- Children, continuing as new, code that changes, and what instances show of themselves. Libraries without these would
-- show the history of earlier runs as part of the current one, and never tell a parent that its child ended.

-- The operation of the parent that started it.
ALTER TABLE romancy.instances ADD COLUMN parent_op TEXT;
-- True: its parent does not cancel it. Null: it does, or there is none.
ALTER TABLE romancy.instances ADD COLUMN is_free INTEGER;
-- Entries up to this one are of earlier runs.
ALTER TABLE romancy.instances ADD COLUMN base INTEGER NOT NULL DEFAULT 0;
-- When the current run began. Null: with the instance.
ALTER TABLE romancy.instances ADD COLUMN began_at INTEGER;
-- When its time limit began. Null: with the current run.
ALTER TABLE romancy.instances ADD COLUMN limited_from INTEGER;
-- Of a fork: [[number of an entry, id of the instance before it], ...]
ALTER TABLE romancy.instances ADD COLUMN seed TEXT;
-- Of a blocked instance: the builds whose code did not follow its history.
ALTER TABLE romancy.instances ADD COLUMN builds TEXT;
-- Of a request to a parent: the operation whose child ended.
ALTER TABLE romancy.requests ADD COLUMN op TEXT;
CREATE INDEX romancy.instances_parent ON romancy.instances (parent, created_at, id) WHERE parent IS NOT NULL;
CREATE INDEX romancy.instances_unfit ON romancy.instances (workflow, id) WHERE builds IS NOT NULL;

-- What instances show of themselves. An attribute is JSON; lists by attribute follow the index, newest first.
CREATE TABLE romancy.views (instance TEXT PRIMARY KEY, value BLOB NOT NULL, at INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE romancy.attributes (instance TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, created_at INTEGER NOT NULL,
  PRIMARY KEY (instance, name)) WITHOUT ROWID;
CREATE INDEX romancy.attributes_value ON romancy.attributes (name, value, created_at, instance);
