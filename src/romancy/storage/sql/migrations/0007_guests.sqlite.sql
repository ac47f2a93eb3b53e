-- min_reader: 7
-- From here on, tables and indexes have the prefix "romancy_", so that the file may hold tables of the user's own. Those
-- of earlier versions are renamed before the migrations run (sqlite/migrations.py).

-- Starts and events that callers left in transactions of their own. A worker moves them on. `seen` is the last event
-- before the instance. A start that is refused stays here, with the reason.
CREATE TABLE romancy.inbox (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  kind INTEGER NOT NULL,            -- 1: an event, 2: a start
  at INTEGER NOT NULL,
  source TEXT, event TEXT, type TEXT, subject TEXT, time INTEGER, target TEXT, attrs BLOB, expires_at INTEGER,
  instance TEXT, workflow TEXT, input_kind INTEGER, deadline INTEGER,
  options TEXT,                     -- further values of a start, as JSON
  data BLOB,                        -- of the event, or the input of the instance
  seen INTEGER,
  refused TEXT,
  CHECK (kind = 1 AND instance IS NULL AND source IS NOT NULL AND event IS NOT NULL AND type IS NOT NULL
    OR kind = 2 AND instance IS NOT NULL AND workflow IS NOT NULL AND input_kind IS NOT NULL AND data IS NOT NULL)
);
CREATE INDEX romancy.inbox_todo ON romancy.inbox (id) WHERE refused IS NULL
