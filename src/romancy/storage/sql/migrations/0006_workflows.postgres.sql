-- min_reader: 6
-- Children, continuing as new, code that changes, and what instances show of themselves. Libraries without these would
-- show the history of earlier runs as part of the current one, and never tell a parent that its child ended. Adding the
-- columns takes no time; building the two indexes reads the table once.

ALTER TABLE instances
  ADD COLUMN parent_op text COLLATE "C",      -- the operation of the parent that started it
  ADD COLUMN is_free boolean,                 -- true: its parent does not cancel it. Null: it does, or there is none
  ADD COLUMN base bigint NOT NULL DEFAULT 0,  -- entries up to this one are of earlier runs
  ADD COLUMN began_at bigint,                 -- when the current run began, null: with the instance
  ADD COLUMN limited_from bigint,             -- when its time limit began, null: with the current run
  ADD COLUMN seed text,                       -- of a fork: [[number of an entry, id before it], ...]
  ADD COLUMN builds text;                     -- of a blocked instance: the builds whose code did not follow its history
-- Of a request to a parent: the operation whose child ended.
ALTER TABLE requests ADD COLUMN op text COLLATE "C";
CREATE INDEX instances_parent ON instances (parent, created_at, id) WHERE parent IS NOT NULL;
CREATE INDEX instances_unfit ON instances (workflow, id) WHERE builds IS NOT NULL;

-- What instances show of themselves. A view may change with every step, hence the free space in its pages. An attribute
-- is JSON; lists by attribute follow the index, newest first.
CREATE TABLE views (instance text COLLATE "C" PRIMARY KEY, value bytea NOT NULL, at bigint NOT NULL)
  WITH (fillfactor = 70);
CREATE TABLE attributes (instance text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL,
  value text COLLATE "C" NOT NULL, created_at bigint NOT NULL, PRIMARY KEY (instance, name));
CREATE INDEX attributes_value ON attributes (name, value, created_at, instance);
