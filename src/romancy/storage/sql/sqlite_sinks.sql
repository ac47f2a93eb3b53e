-- Sinks on SQLite: see storage/sqlite/sinks.py.

-- Differs: the number of the last event.
-- part: present
0, (SELECT coalesce(max(seq), 0) FROM romancy.events)
-- Differs: the order of events.
-- part: beyond_sink
e.seq > s.seq
-- Differs: one writer.
-- name: claim_sink
UPDATE romancy.sinks SET owner = :worker, seen_at = :at
WHERE name = :sink AND EXISTS (SELECT 1 FROM romancy.workers w WHERE w.id = :worker)
  AND (owner IS NULL OR NOT EXISTS (SELECT 1 FROM romancy.workers w WHERE w.id = owner))
RETURNING xid, seq
-- Differs: no LATERAL. Of each type, the numbers up to the one after the limit are read from the index.
-- name: sink_events
SELECT 0, e.origin IS NOT NULL, {event}
FROM (SELECT n.seq FROM {listed} CROSS JOIN romancy.events n INDEXED BY romancy.events_type
  WHERE n.type = x.value AND n.target IS NULL AND n.seq > :seq AND n.seq <= coalesce((SELECT b.seq FROM romancy.events b
    INDEXED BY romancy.events_type WHERE b.type = x.value AND b.target IS NULL AND b.seq > :seq
    ORDER BY b.seq LIMIT 1 OFFSET :limit), 9223372036854775807)
  ORDER BY n.seq LIMIT :limit) z CROSS JOIN romancy.events e ON e.seq = z.seq ORDER BY e.seq
-- Differs: several statements.
-- name: advance_sink
UPDATE romancy.sinks SET xid = :xid, seq = :seq, seen_at = :at WHERE name = :sink AND owner = :worker RETURNING name
-- name: delete_parked
DELETE FROM romancy.sink_parked WHERE sink = :sink AND seq = :seq
-- name: park
INSERT INTO romancy.sink_parked (sink, seq, xid, line, attempts, since, due_at, error, dead)
VALUES (:sink, :seq, :xid, :line, :attempts, :since, :due_at, :error, :dead)
ON CONFLICT (sink, seq) DO UPDATE SET attempts = excluded.attempts, since = excluded.since, due_at = excluded.due_at,
  error = excluded.error, dead = excluded.dead
-- Differs: several statements.
-- name: forget_sinks
DELETE FROM romancy.sinks WHERE seen_at + keep < :at AND name NOT IN (SELECT x.value FROM {listed}) RETURNING name
-- name: delete_types_of_sink
DELETE FROM romancy.sink_types WHERE sink = :sink
-- name: delete_parked_of_sink
DELETE FROM romancy.sink_parked WHERE sink = :sink
