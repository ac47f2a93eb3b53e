-- min_reader: 9
-- Sinks, which pass events on to other systems. Older libraries would remove events that a sink has not passed on yet.

-- How an event came in from outside: "http", "webhook". Null for those that the app itself sent: only these are passed on.
ALTER TABLE romancy.events ADD COLUMN origin TEXT;

-- How far each sink has come in the event log, and the worker that runs it. `seen_at`: when a process last declared it;
-- one that no process declares is forgotten after `keep`. SQLite numbers transactions by `seq` alone: `xid` is 0.
CREATE TABLE romancy.sinks (
  name TEXT PRIMARY KEY,
  owner TEXT,
  xid INTEGER NOT NULL, seq INTEGER NOT NULL,
  types TEXT NOT NULL,                -- what was declared last, as JSON: no position moves by other types
  holds INTEGER NOT NULL,             -- an event that is given up holds its line
  seen_at INTEGER NOT NULL, keep INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE romancy.sink_types (sink TEXT NOT NULL, pattern TEXT NOT NULL, PRIMARY KEY (sink, pattern)) WITHOUT ROWID;
-- Events that a sink has passed by: their delivery failed, or they come after one that failed in the same line. Only the
-- first of a line is due. `dead`: it was given up.
CREATE TABLE romancy.sink_parked (
  sink TEXT NOT NULL, seq INTEGER NOT NULL, xid INTEGER NOT NULL,
  line TEXT NOT NULL,
  attempts INTEGER NOT NULL, since INTEGER NOT NULL, due_at INTEGER, error TEXT,
  dead INTEGER NOT NULL,
  PRIMARY KEY (sink, seq)
) WITHOUT ROWID;
CREATE INDEX romancy.sink_parked_due ON romancy.sink_parked (sink, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX romancy.sink_parked_line ON romancy.sink_parked (sink, line, xid, seq);
CREATE INDEX romancy.sink_parked_dead ON romancy.sink_parked (sink, seq) WHERE dead;
CREATE INDEX romancy.sink_parked_old ON romancy.sink_parked (since) WHERE dead;
CREATE INDEX romancy.sink_parked_event ON romancy.sink_parked (seq);
