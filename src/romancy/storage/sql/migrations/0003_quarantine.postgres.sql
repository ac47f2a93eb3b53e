-- min_reader: 1
-- Which suspect killed its worker is decided by evidence (engine/evidence.py): this is where it is kept. Older workers
-- go on without it.

-- A worker that was asked to stop: if it does not live to release its instances, that is no death.
ALTER TABLE workers ADD COLUMN leaving boolean NOT NULL DEFAULT false;

-- Of something that was running when its worker died. Null for all others. An attempt with op '' is the workflow's code.
ALTER TABLE attempts ADD COLUMN suspected_at bigint, ADD COLUMN tried bigint, ADD COLUMN tried_alone bigint,
  ADD COLUMN alone integer, ADD COLUMN run bigint, ADD COLUMN is_alone boolean, ADD COLUMN culprit text COLLATE "C";
CREATE INDEX attempts_suspected ON attempts (suspected_at) WHERE suspected_at IS NOT NULL;

-- Suspects that ended by themselves after they had run alone.
CREATE TABLE trials (culprit text COLLATE "C" NOT NULL, at bigint NOT NULL, since bigint NOT NULL,
  tried_alone bigint NOT NULL, alone integer NOT NULL);
CREATE INDEX trials_at ON trials (at);

-- Workers that died, for some days.
CREATE TABLE deaths (worker text COLLATE "C" PRIMARY KEY, since bigint NOT NULL, at bigint NOT NULL);
CREATE INDEX deaths_at ON deaths (at);
