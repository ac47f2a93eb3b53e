-- Sinks, as far as both databases run the same: see storage/sinks.py.

-- name: touch_sink
UPDATE romancy.sinks SET seen_at = :at::bigint WHERE name = :sink::text
-- The earliest time at which the first event of a line is due. Others of a line wait for it, whatever their time.
-- name: sink
SELECT s.owner, EXISTS (SELECT 1 FROM romancy.workers w WHERE w.id = s.owner), s.xid::text::bigint, s.seq, s.types,
  (SELECT d.due_at FROM romancy.sink_parked d WHERE d.sink = s.name AND d.due_at IS NOT NULL AND {is_first}
    ORDER BY d.due_at LIMIT 1)
FROM romancy.sinks s WHERE s.name = :sink::text
-- part: is_first
NOT d.dead AND NOT EXISTS (SELECT 1 FROM romancy.sink_parked f WHERE f.sink = d.sink AND f.line = d.line AND NOT f.dead
  AND (f.xid, f.seq) < (d.xid, d.seq))
-- Types between two texts that events have, from one to the next by the index.
-- name: types_between
WITH RECURSIVE found (type) AS (SELECT (SELECT e.type FROM romancy.events e
    WHERE e.type >= :low::text AND e.type < :high::text ORDER BY e.type LIMIT 1)
  UNION ALL SELECT (SELECT e.type FROM romancy.events e
    WHERE e.type > f.type AND e.type < :high ORDER BY e.type LIMIT 1) FROM found f WHERE f.type IS NOT NULL)
SELECT type FROM found WHERE type IS NOT NULL
-- name: sink_lines
SELECT DISTINCT line FROM romancy.sink_parked WHERE sink = :sink::text AND (NOT dead OR :holds::boolean)
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
  (SELECT count(*) FROM (SELECT 1 FROM romancy.sink_parked p WHERE p.sink = s.name AND p.dead LIMIT :cap) y),
  (SELECT p.error FROM romancy.sink_parked p WHERE p.sink = s.name AND p.due_at IS NOT NULL ORDER BY p.due_at LIMIT 1)
FROM romancy.sinks s ORDER BY s.name
-- name: sink_patterns
SELECT sink, pattern FROM romancy.sink_types ORDER BY sink, pattern
-- name: dead_letters
SELECT p.sink, p.attempts, p.error, p.since, {whole_event} FROM romancy.sink_parked p CROSS JOIN romancy.events e
WHERE e.seq = p.seq AND p.dead AND (p.sink, p.seq) > (:after_sink::text, :after_seq::bigint)
  AND (:sink::text IS NULL OR p.sink = :sink)
ORDER BY p.sink, p.seq LIMIT :limit::integer
-- Only the first of a line is due.
-- name: retry_dead_letters
UPDATE romancy.sink_parked AS p SET dead = false, since = :at::bigint, attempts = 0,
  due_at = CASE WHEN NOT EXISTS (SELECT 1 FROM romancy.sink_parked f WHERE f.sink = p.sink AND f.line = p.line
    AND (f.xid, f.seq) < (p.xid, p.seq)) THEN :at END
WHERE p.sink = :sink::text AND p.dead AND p.seq IN (SELECT q.seq FROM romancy.sink_parked q
  WHERE q.sink = :sink AND q.dead ORDER BY q.seq LIMIT :limit::integer)
RETURNING seq
-- Those that hold others are kept.
-- name: forget_dead_letters
DELETE FROM romancy.sink_parked WHERE dead AND since < :before::bigint
  AND sink NOT IN (SELECT name FROM romancy.sinks WHERE holds)

-- Whether an event need not be kept for any sink: all have passed it, and none has parked it.
-- part: relayed
NOT EXISTS (SELECT 1 FROM romancy.sink_parked p WHERE p.seq = e.seq)
  AND NOT EXISTS (SELECT 1 FROM romancy.sinks s WHERE e.target IS NULL AND e.origin IS NULL AND {beyond_sink}
    AND EXISTS (SELECT 1 FROM romancy.sink_types t WHERE t.sink = s.name AND (t.pattern = e.type
      OR substr(t.pattern, length(t.pattern)) = '*'
        AND substr(e.type, 1, length(t.pattern) - 1) = substr(t.pattern, 1, length(t.pattern) - 1))))
