-- min_reader: 9
-- What activities and workflows emit. Older libraries know none of it, and leave it behind when they remove an instance.

-- A row holds what one operation emitted on one topic in one flush: `count` lines of JSON. `seq` is the number of the
-- first of them among all of the instance, `n` among those of the topic. `size` is the sum for the topic, up to here.
CREATE TABLE romancy.emissions (
  instance TEXT NOT NULL,
  seq INTEGER NOT NULL,
  topic TEXT NOT NULL,
  n INTEGER NOT NULL,
  count INTEGER NOT NULL,
  kind INTEGER NOT NULL,              -- 0 values, 1 a restart, 2 values: the first of the operation, 3 removed
  op TEXT NOT NULL,                   -- empty: the code of the workflow
  run INTEGER NOT NULL,
  at INTEGER NOT NULL,
  size INTEGER NOT NULL,
  data BLOB NOT NULL,
  PRIMARY KEY (instance, seq)
);
CREATE UNIQUE INDEX romancy.emissions_topic ON romancy.emissions (instance, topic, n);
CREATE INDEX romancy.emissions_runs ON romancy.emissions (instance, topic, op, run) WHERE kind > 0;
