-- Retention on SQLite; see retention.sql.

-- Differs: SQLite may not find the right index by itself.
-- part: by_oldest
INDEXED BY romancy.instances_oldest
-- Differs: SQLite may not find the right index by itself.
-- part: by_age
INDEXED BY romancy.events_age
-- Differs: SQLite may not find the right index by itself.
-- part: by_address
INDEXED BY romancy.events_addressed
-- Differs: events are dispatched when they are stored here, so none is left undispatched.
-- part: handled
NOT EXISTS (SELECT 1 FROM romancy.deliveries d WHERE d.event = e.seq) AND {relayed}
-- Events that no instance may take again after a retry.
-- Differs: SQLite looks up row by row anyway.
-- part: untaken
NOT EXISTS (SELECT 1 FROM romancy.consumed c WHERE c.event = e.seq
  AND EXISTS (SELECT 1 FROM romancy.instances i WHERE i.id = c.instance AND i.status <> 10))
-- Differs: one type at a time.
-- name: prunable_events
SELECT e.seq FROM romancy.events e {by_age} WHERE e.type = :type AND e.target IS NULL AND e.accepted_at < :before
  AND {forgettable} ORDER BY e.accepted_at LIMIT :limit
-- A workflow that may wait for any type need not learn others.
-- name: insert_interest
INSERT INTO romancy.interests (workflow, type, next, kind, since) SELECT :workflow, :type, :next, :kind, :since
WHERE NOT (:learned AND :kind = 3 AND :type <> '' AND EXISTS (SELECT 1 FROM romancy.interests i
  WHERE i.workflow = :workflow AND i.type = '*' AND i.kind = 2))
ON CONFLICT (workflow, type, next) DO UPDATE SET kind = excluded.kind
WHERE excluded.kind IN (1, 2) AND romancy.interests.kind <> excluded.kind
-- name: insert_cut
INSERT INTO romancy.cuts (type, upto) VALUES (:type, :upto)
ON CONFLICT (type) DO UPDATE SET upto = max(romancy.cuts.upto, excluded.upto)
-- Of events that were found before this transaction, those that nothing was delivered of since.
-- name: still_handled
SELECT e.seq FROM json_each(:seqs) x CROSS JOIN romancy.events e ON e.seq = x.value WHERE {handled}
