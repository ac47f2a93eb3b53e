-- min_reader: 1
-- An instance may have thousands of waits that are alike. An event looks for one of them: all but the first to be opened
-- are *followers*, and an index leads from the followers of one kind to those of the next, however many there are.
-- Existing waits are not followers: each is found by itself, as before.

ALTER TABLE romancy.wait_keys RENAME TO romancy.former_wait_keys;
DROP INDEX romancy.wait_keys_wait;
CREATE TABLE romancy.wait_keys (
  type TEXT NOT NULL,
  shape INTEGER NOT NULL,
  key BLOB NOT NULL,
  instance TEXT NOT NULL,
  op TEXT NOT NULL,
  follows INTEGER NOT NULL DEFAULT 0,  -- was opened while the instance had another wait like it
  alike BLOB NOT NULL DEFAULT x'',     -- of a follower: the hash of what it has in common with those
  PRIMARY KEY (type, shape, key, follows, instance, alike, op)
) WITHOUT ROWID;
INSERT INTO romancy.wait_keys (type, shape, key, instance, op) SELECT type, shape, key, instance, op FROM romancy.former_wait_keys;
DROP TABLE romancy.former_wait_keys;
CREATE INDEX romancy.wait_keys_wait ON romancy.wait_keys (instance, op);
