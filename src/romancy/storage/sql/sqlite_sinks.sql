-- Sinks on SQLite: see storage/sqlite/sinks.py.

-- Differs: several statements.
-- name: declare_sink
INSERT INTO romancy.sinks (name, xid, seq, types, holds, seen_at, keep)
SELECT :sink, 0, (SELECT coalesce(max(seq), 0) FROM romancy.events), :types, :holds, :at, :keep WHERE true
ON CONFLICT (name) DO UPDATE SET types = excluded.types, holds = excluded.holds, seen_at = excluded.seen_at,
  keep = excluded.keep
-- name: insert_sink_types
INSERT INTO romancy.sink_types (sink, pattern) SELECT :sink, x.value FROM {listed} WHERE true ON CONFLICT DO NOTHING
-- name: delete_sink_types
DELETE FROM romancy.sink_types WHERE sink = :sink AND pattern NOT IN (SELECT x.value FROM {listed})
-- Differs: the order of events.
-- part: beyond_sink
e.seq > s.seq
-- Differs: one writer.
-- name: claim_sink
UPDATE romancy.sinks SET owner = :worker, seen_at = :at
WHERE name = :sink AND EXISTS (SELECT 1 FROM romancy.workers w WHERE w.id = :worker)
  AND (owner IS NULL OR NOT EXISTS (SELECT 1 FROM romancy.workers w WHERE w.id = owner))
RETURNING xid, seq
-- Differs: events are numbered in the order of their transactions.
-- name: sink_horizon
SELECT h.seq + 1, 0, h.seq FROM (SELECT coalesce(max(seq), 0) AS seq FROM romancy.events) h
-- Differs: no LATERAL. Of each type, the numbers up to the one after the limit are read from the index.
-- name: sink_events
SELECT 0, y.received, y.size, {event} FROM (SELECT z.seq, n.origin IS NOT NULL AS received,
    coalesce(length(n.data), 0) AS size, sum(coalesce(length(n.data), 0)) OVER (ORDER BY z.seq) AS sofar
  FROM (SELECT o.seq FROM {listed} CROSS JOIN romancy.events o INDEXED BY romancy.events_type
    WHERE o.type = x.value AND o.target IS NULL AND o.seq > :seq AND o.seq < :horizon
      AND o.seq <= coalesce((SELECT b.seq FROM romancy.events b INDEXED BY romancy.events_type
        WHERE b.type = x.value AND b.target IS NULL AND b.seq > :seq ORDER BY b.seq LIMIT 1 OFFSET :limit),
        9223372036854775807)
    ORDER BY o.seq LIMIT :limit) z CROSS JOIN romancy.events n ON n.seq = z.seq) y
CROSS JOIN romancy.events e ON e.seq = y.seq WHERE y.sofar - y.size < :bytes ORDER BY e.seq
-- Differs: no LATERAL. Of each line, so many events are read, by the index.
-- name: sink_due
SELECT 0, p.line, p.attempts, p.since, {event}
FROM (SELECT d.line FROM romancy.sink_parked d WHERE d.sink = :sink AND d.due_at <= :now AND {is_first}
  ORDER BY d.due_at LIMIT :lines) l
CROSS JOIN romancy.sink_parked p ON p.sink = :sink AND p.line = l.line AND NOT p.dead
  AND p.seq <= coalesce((SELECT b.seq FROM romancy.sink_parked b WHERE b.sink = :sink AND b.line = l.line AND NOT b.dead
    ORDER BY b.xid, b.seq LIMIT 1 OFFSET :each), 9223372036854775807)
CROSS JOIN romancy.events e ON e.seq = p.seq ORDER BY p.seq
-- Differs: several statements.
-- name: advance_sink
UPDATE romancy.sinks SET xid = :xid, seq = :seq, seen_at = :at 
WHERE name = :sink AND owner = :worker AND types = :types RETURNING name
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
