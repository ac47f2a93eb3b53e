-- The index key of a database whose values are sealed, itself sealed. At most one row. Once it is there, only processes
-- with a codec can write: see storage/opener.py. folder: where this database keeps values outside; a copy of it, made by
-- `romancy copy`, has another one.
-- min_reader: 9
CREATE TABLE vault (id smallint PRIMARY KEY CHECK (id = 1), key bytea NOT NULL,
  folder text NOT NULL DEFAULT substr(replace(gen_random_uuid()::text, '-', ''), 1, 16));
