-- min_reader: 6
-- Children, continuing as new, and code that changes. Libraries without these would show the history of earlier runs as
-- part of the current one, and never tell a parent that its child ended. Adding the columns takes no time; building the
-- two indexes reads the table once.

ALTER TABLE instances
  ADD COLUMN parent_op text COLLATE "C",      -- the operation of the parent that started it
  ADD COLUMN base bigint NOT NULL DEFAULT 0,  -- entries up to this one are of earlier runs
  ADD COLUMN began_at bigint,                 -- when the current run began, null: with the instance
  ADD COLUMN builds text;                     -- of a blocked instance: the builds whose code did not follow its history
-- Of a request to a parent: the operation whose child ended.
ALTER TABLE requests ADD COLUMN op text COLLATE "C";
CREATE INDEX instances_parent ON instances (parent, created_at, id) WHERE parent IS NOT NULL;
CREATE INDEX instances_unfit ON instances (workflow, id) WHERE status = 9 AND builds IS NOT NULL;
