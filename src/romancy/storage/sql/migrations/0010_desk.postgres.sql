-- min_reader: 9
-- What operators look at: what each worker has, counts by the minute, and who did what. Older libraries know none of it;
-- those that remove an instance leave its acts behind, so acts from before an instance's start are never shown.

-- What a worker says about itself, as JSON: process, version, build, workflows, slots. Null for one of an older library.
-- `load`: how many activities it ran when it last renewed its lease.
ALTER TABLE workers ADD COLUMN about text, ADD COLUMN load integer;

-- What happened in a minute, added up over all workers; and how many instances needed attention then, as counted by the
-- first worker that looked. Removed after a day.
CREATE TABLE minutes (
  minute bigint PRIMARY KEY,          -- since 1970
  started bigint NOT NULL, completed bigint NOT NULL, failed bigint NOT NULL, cancelled bigint NOT NULL,
  failures integer, blocked integer, retrying integer, overdue integer, queued integer
) WITH (fillfactor = 50);

-- Who started, cancelled, resumed or retried an instance, or answered its question.
CREATE TABLE acts (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, instance text COLLATE "C" NOT NULL, at bigint NOT NULL,
  verb text COLLATE "C" NOT NULL, who text COLLATE "C" NOT NULL
);
CREATE INDEX acts_instance ON acts (instance, id);
