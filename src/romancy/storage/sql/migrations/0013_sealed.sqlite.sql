-- The index key of a database whose values are sealed, itself sealed. At most one row. Once it is there, only processes
-- with a codec can write: see storage/opener.py. folder: where this database keeps values outside; a copy of it, made by
-- `romancy copy`, has another one.
-- min_reader: 9
CREATE TABLE romancy.vault (id INTEGER PRIMARY KEY CHECK (id = 1), key BLOB NOT NULL,
  folder TEXT NOT NULL DEFAULT (lower(hex(randomblob(8))))) WITHOUT ROWID;
