-- Sinks, as far as both databases run the same: see storage/sinks.py.

-- name: declare_sink
INSERT INTO romancy.sinks (name, xid, seq, seen_at, keep) SELECT :sink::text, {present}, :at::bigint, :keep::bigint WHERE true
ON CONFLICT (name) DO UPDATE SET seen_at = excluded.seen_at, keep = excluded.keep
-- name: insert_sink_types
INSERT INTO romancy.sink_types (sink, pattern) SELECT :sink::text, x.value FROM {listed} WHERE true ON CONFLICT DO NOTHING
-- name: delete_sink_types
DELETE FROM romancy.sink_types WHERE sink = :sink::text AND pattern NOT IN (SELECT x.value FROM {listed})
-- name: sink
SELECT s.owner, EXISTS (SELECT 1 FROM romancy.workers w WHERE w.id = s.owner), s.xid::text::bigint, s.seq,
  (SELECT min(p.due_at) FROM romancy.sink_parked p WHERE p.sink = s.name AND p.due_at IS NOT NULL)
FROM romancy.sinks s WHERE s.name = :sink::text
-- Types between two texts that events have, from one to the next by the index.
-- name: types_between
WITH RECURSIVE found (type) AS (SELECT (SELECT e.type FROM romancy.events e
    WHERE e.type >= :low::text AND e.type < :high::text ORDER BY e.type LIMIT 1)
  UNION ALL SELECT (SELECT e.type FROM romancy.events e
    WHERE e.type > f.type AND e.type < :high ORDER BY e.type LIMIT 1) FROM found f WHERE f.type IS NOT NULL)
SELECT type FROM found WHERE type IS NOT NULL
-- name: sink_lines
SELECT DISTINCT line FROM romancy.sink_parked WHERE sink = :sink::text AND (NOT dead OR :holds::boolean)
-- Parked events of lines that are due, each line from its first on.
-- name: sink_due
SELECT p.xid::text::bigint, p.line, p.attempts, p.since, {event}
FROM romancy.sink_parked p CROSS JOIN romancy.events e
WHERE e.seq = p.seq AND p.sink = :sink::text AND NOT p.dead AND p.line IN (SELECT d.line FROM romancy.sink_parked d
  WHERE d.sink = :sink AND d.due_at <= :now::bigint ORDER BY d.due_at LIMIT :lines::integer)
ORDER BY p.xid, p.seq LIMIT :limit::integer
-- The first event of each of these lines becomes due, unless it is already. A dead one can hold its line.
-- name: sink_heads
UPDATE romancy.sink_parked SET due_at = coalesce(due_at, :at::bigint) WHERE sink = :sink::text AND NOT dead AND seq IN (
  SELECT (SELECT q.seq FROM romancy.sink_parked q WHERE q.sink = :sink AND q.line = x.value AND (NOT q.dead OR :holds::boolean)
    ORDER BY q.xid, q.seq LIMIT 1) FROM {listed})
RETURNING line

-- For people.
-- name: sinks
SELECT s.name, (SELECT w.id FROM romancy.workers w WHERE w.id = s.owner),
  (SELECT count(*) FROM (SELECT 1 FROM romancy.sink_parked p WHERE p.sink = s.name AND NOT p.dead LIMIT :cap::integer) x),
  (SELECT count(*) FROM (SELECT 1 FROM romancy.sink_parked p WHERE p.sink = s.name AND p.dead LIMIT :cap) y)
FROM romancy.sinks s ORDER BY s.name
-- name: sink_patterns
SELECT sink, pattern FROM romancy.sink_types ORDER BY sink, pattern
-- name: dead_letters
SELECT p.sink, p.attempts, p.error, p.since, {whole_event} FROM romancy.sink_parked p CROSS JOIN romancy.events e
WHERE e.seq = p.seq AND p.dead AND (p.sink, p.seq) > (:after_sink::text, :after_seq::bigint)
  AND (:sink::text IS NULL OR p.sink = :sink)
ORDER BY p.sink, p.seq LIMIT :limit::integer
-- name: retry_dead_letters
UPDATE romancy.sink_parked SET dead = false, due_at = :at::bigint, since = :at, attempts = 0
WHERE sink = :sink::text AND dead AND seq IN (SELECT q.seq FROM romancy.sink_parked q
  WHERE q.sink = :sink AND q.dead ORDER BY q.seq LIMIT :limit::integer)
RETURNING seq
-- name: forget_dead_letters
DELETE FROM romancy.sink_parked WHERE dead AND since < :before::bigint

-- Whether an event need not be kept for any sink: all have passed it, and none has parked it.
-- part: relayed
NOT EXISTS (SELECT 1 FROM romancy.sink_parked p WHERE p.seq = e.seq)
  AND NOT EXISTS (SELECT 1 FROM romancy.sinks s WHERE e.target IS NULL AND e.origin IS NULL AND {beyond_sink}
    AND EXISTS (SELECT 1 FROM romancy.sink_types t WHERE t.sink = s.name AND (t.pattern = e.type
      OR substr(t.pattern, length(t.pattern)) = '*'
        AND substr(e.type, 1, length(t.pattern) - 1) = substr(t.pattern, 1, length(t.pattern) - 1))))
