-- min_reader: 1
-- Which suspect killed its worker is decided by evidence (engine/evidence.py): this is where it is kept. Older workers
-- go on without it.

-- A worker that was asked to stop: if it does not live to release its instances, that is no death.
ALTER TABLE romancy.workers ADD COLUMN leaving INTEGER NOT NULL DEFAULT 0;

-- Of something that was running when its worker died. Null for all others. An attempt with op '' is the workflow's code.
ALTER TABLE romancy.attempts ADD COLUMN suspected_at INTEGER;
ALTER TABLE romancy.attempts ADD COLUMN tried INTEGER;
ALTER TABLE romancy.attempts ADD COLUMN tried_alone INTEGER;
ALTER TABLE romancy.attempts ADD COLUMN alone INTEGER;
ALTER TABLE romancy.attempts ADD COLUMN run INTEGER;
ALTER TABLE romancy.attempts ADD COLUMN is_alone INTEGER;
ALTER TABLE romancy.attempts ADD COLUMN culprit TEXT;
CREATE INDEX romancy.attempts_suspected ON romancy.attempts (suspected_at) WHERE suspected_at IS NOT NULL;

-- Suspects that ended by themselves after they had run alone.
CREATE TABLE romancy.trials (culprit TEXT NOT NULL, at INTEGER NOT NULL, since INTEGER NOT NULL, tried_alone INTEGER NOT NULL,
  alone INTEGER NOT NULL);
CREATE INDEX romancy.trials_at ON romancy.trials (at);

-- Workers that died, for some days.
CREATE TABLE romancy.deaths (worker TEXT PRIMARY KEY, since INTEGER NOT NULL, at INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX romancy.deaths_at ON romancy.deaths (at);
