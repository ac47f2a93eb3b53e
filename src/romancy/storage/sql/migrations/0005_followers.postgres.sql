-- min_reader: 1
-- An instance may have thousands of waits that are alike. An event looks for one of them: all but the first to be opened
-- are *followers*, and an index leads from the followers of one kind to those of the next, however many there are.
-- Waits that are here already follow nobody: each is found by itself, as before.

ALTER TABLE wait_keys
  ADD COLUMN follows boolean NOT NULL DEFAULT false,  -- was opened while the instance had another wait like it
  ADD COLUMN alike bytea NOT NULL DEFAULT '',         -- of a follower: the hash of what it has in common with those
  DROP CONSTRAINT wait_keys_pkey,
  ADD PRIMARY KEY (type, shape, key, follows, instance, alike, op);
