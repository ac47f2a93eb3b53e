-- min_reader: 9
-- What activities and workflows emit. Older libraries know none of it, and leave it behind when they remove an instance.

-- A row holds what one operation emitted on one topic in one flush: `count` lines of JSON. `seq` is the number of the
-- first of them among all of the instance, `n` among those of the topic. `size` is the sum for the topic, up to here.
CREATE TABLE emissions (
  instance text COLLATE "C" NOT NULL,
  seq bigint NOT NULL,
  topic text COLLATE "C" NOT NULL,
  n bigint NOT NULL,
  count integer NOT NULL,
  kind smallint NOT NULL,             -- 0 values, 1 a restart, 2 values: the first of the operation, 3 removed
  op text COLLATE "C" NOT NULL,       -- empty: the code of the workflow
  run integer NOT NULL,
  at bigint NOT NULL,
  size bigint NOT NULL,
  data bytea NOT NULL,
  PRIMARY KEY (instance, seq)
);
CREATE UNIQUE INDEX emissions_topic ON emissions (instance, topic, n);
CREATE INDEX emissions_runs ON emissions (instance, topic, op, run) WHERE kind > 0;
