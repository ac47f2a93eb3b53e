-- min_reader: 9
-- What operators look at: what each worker has, counts by the minute, and who did what. Older libraries know none of it;
-- those that remove an instance leave its acts behind, so acts from before an instance's start are never shown.

-- What a worker says about itself, as JSON: process, version, build, workflows, slots. Null for one of an older library.
ALTER TABLE romancy.workers ADD COLUMN about TEXT;
-- How many activities it ran when it last renewed its lease.
ALTER TABLE romancy.workers ADD COLUMN load INTEGER;

-- What happened in a minute, added up over all workers; and how many instances needed attention then, as counted by the
-- first worker that looked. Removed after a day.
CREATE TABLE romancy.minutes (
  minute INTEGER PRIMARY KEY,         -- since 1970
  started INTEGER NOT NULL, completed INTEGER NOT NULL, failed INTEGER NOT NULL, cancelled INTEGER NOT NULL,
  failures INTEGER, blocked INTEGER, retrying INTEGER, overdue INTEGER, queued INTEGER
);

-- Who started, cancelled, resumed or retried an instance, or answered its question.
CREATE TABLE romancy.acts (
  id INTEGER PRIMARY KEY AUTOINCREMENT, instance TEXT NOT NULL, at INTEGER NOT NULL, verb TEXT NOT NULL, who TEXT NOT NULL
);
CREATE INDEX romancy.acts_instance ON romancy.acts (instance, id);
