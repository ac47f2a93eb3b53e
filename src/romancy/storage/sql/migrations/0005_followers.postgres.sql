-- min_reader: 1
-- An instance may have thousands of waits that are alike. An event looks for one of them: all but the first to be opened
-- are *followers*, and an index leads from the followers of one kind to those of the next, however many there are.
-- Existing waits are not followers: each is found by itself, as before.

ALTER TABLE wait_keys
  ADD COLUMN follows boolean NOT NULL DEFAULT false,  -- was opened while the instance had another wait like it
  ADD COLUMN alike bytea NOT NULL DEFAULT '',         -- of a follower: the hash of what it has in common with those
  DROP CONSTRAINT wait_keys_pkey,
  ADD PRIMARY KEY (type, shape, key, follows, instance, alike, op);

-- Former versions could store a wait with a filter while the log was still being indexed for it: it looked for events,
-- and missed those that had no key yet. Each wait for which there is an event gets a hint, so that it is looked at again.
-- A mark that was set meanwhile may have passed over that event: it goes.
WITH missed AS MATERIALIZED (SELECT y.type, y.shape, y.key, y.instance, c.seq FROM wait_keys y
  CROSS JOIN LATERAL (SELECT w.model, w.since, coalesce(w.born, i.born) AS born, i.trigger_xid, i.trigger_seq
    FROM waits w JOIN instances i ON i.id = w.instance
    WHERE w.instance = y.instance AND w.op = y.op AND i.status < 9 OFFSET 0) k
  CROSS JOIN LATERAL (SELECT x.seq FROM event_keys x JOIN events e ON e.seq = x.seq
    WHERE x.shape = y.shape AND x.key = y.key AND (e.target IS NULL OR e.target = y.instance)
      AND (k.since <= e.accepted_at OR k.since IS NULL AND NOT pg_visible_in_snapshot(e.xid, k.born)
        AND (k.trigger_seq IS NULL OR e.seq > k.trigger_seq OR e.xid <> k.trigger_xid))
      AND (e.expires_at IS NULL OR e.expires_at > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
      AND NOT EXISTS (SELECT 1 FROM consumed c WHERE c.instance = y.instance AND c.event = e.seq)
      AND NOT EXISTS (SELECT 1 FROM misfits f WHERE f.instance = y.instance AND f.model = k.model AND f.event = e.seq)
    ORDER BY x.xid, x.seq LIMIT 1) c
  WHERE y.shape > 0),
unmarked AS (DELETE FROM marks m USING missed y
  WHERE m.instance = y.instance AND m.type = y.type AND m.shape = y.shape AND m.key = y.key)
INSERT INTO deliveries (instance, event) SELECT DISTINCT instance, seq FROM missed ORDER BY 1, 2 ON CONFLICT DO NOTHING;
