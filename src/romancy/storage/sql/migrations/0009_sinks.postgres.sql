-- min_reader: 9
-- Sinks, which pass events on to other systems. Older libraries would remove events that a sink has not passed on yet.

-- How an event came in from outside: "http", "webhook". Null for those that the app itself sent: only these are passed on.
ALTER TABLE events ADD COLUMN origin text COLLATE "C";

-- How far each sink has come in the event log, and the worker that runs it. Events have the order of their transactions:
-- the sink reads those below the oldest running one, so that none can come in before its position later. `seen_at`: when
-- a process last declared it; one that no process declares is forgotten after `keep`.
CREATE TABLE sinks (
  name text COLLATE "C" PRIMARY KEY,
  owner text COLLATE "C",
  xid xid8 NOT NULL, seq bigint NOT NULL,
  types text NOT NULL,                -- what was declared last, as JSON: no position moves by other types
  holds boolean NOT NULL,             -- an event that is given up holds its line
  seen_at bigint NOT NULL, keep bigint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
CREATE TABLE sink_types (sink text COLLATE "C" NOT NULL, pattern text COLLATE "C" NOT NULL, PRIMARY KEY (sink, pattern));
-- Events that a sink has passed by: their delivery failed, or they come after one that failed in the same line. Only the
-- first of a line is due. `dead`: it was given up.
CREATE TABLE sink_parked (
  sink text COLLATE "C" NOT NULL, seq bigint NOT NULL, xid xid8 NOT NULL,
  line text COLLATE "C" NOT NULL,
  attempts integer NOT NULL, since bigint NOT NULL, due_at bigint, error text,
  dead boolean NOT NULL,
  PRIMARY KEY (sink, seq)
) WITH (autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX sink_parked_due ON sink_parked (sink, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX sink_parked_line ON sink_parked (sink, line, xid, seq);
CREATE INDEX sink_parked_dead ON sink_parked (sink, seq) WHERE dead;
CREATE INDEX sink_parked_old ON sink_parked (since) WHERE dead;
CREATE INDEX sink_parked_event ON sink_parked (seq);
