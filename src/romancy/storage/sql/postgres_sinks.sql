-- Sinks on PostgreSQL. A sink reads events in the order (xid, seq), and only below the oldest running transaction: no
-- event can come in before its position any more.

-- Differs: one statement. Everything that begins after it has a greater number.
-- name: declare_sink
WITH declared AS (INSERT INTO romancy.sinks (name, xid, seq, types, holds, seen_at, keep)
  VALUES (:sink::text, pg_current_xact_id(), 0, :types::text, :holds::boolean, :at::bigint, :keep::bigint)
  ON CONFLICT (name) DO UPDATE SET types = excluded.types, holds = excluded.holds, seen_at = excluded.seen_at,
    keep = excluded.keep RETURNING name),
gone AS (DELETE FROM romancy.sink_types WHERE sink = :sink AND pattern <> ALL(:listed::text[]))
INSERT INTO romancy.sink_types (sink, pattern) SELECT d.name, x.value FROM declared d, {listed} ON CONFLICT DO NOTHING
-- Differs: the order of events.
-- part: beyond_sink
(e.xid, e.seq) > (s.xid, s.seq)
-- Differs: holds the worker's row.
-- name: claim_sink
WITH {write_fence}
UPDATE romancy.sinks s SET owner = fence.id, seen_at = :at::bigint FROM fence
WHERE s.name = :sink::text AND (s.owner IS NULL OR NOT EXISTS (SELECT 1 FROM romancy.workers w WHERE w.id = s.owner))
RETURNING s.xid::text::bigint, s.seq
-- Differs: the oldest running transaction: no event before it can come in any more.
-- name: sink_horizon
SELECT h.xid, h.xid, 0::bigint FROM (SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS xid) h
-- Differs: the order of events.
-- name: sink_events
SELECT y.xid::text::bigint, y.received, y.size, {event} FROM (SELECT z.xid, z.seq, e.origin IS NOT NULL AS received,
    coalesce(length(e.data), 0) AS size, sum(coalesce(length(e.data), 0)) OVER (ORDER BY z.xid, z.seq) AS sofar
  FROM (SELECT o.xid, o.seq FROM {listed} CROSS JOIN LATERAL (SELECT e.xid, e.seq FROM romancy.events e
      WHERE e.type = x.value AND e.target IS NULL AND (e.xid, e.seq) > (:xid::bigint::text::xid8, :seq::bigint)
        AND e.xid < :horizon::bigint::text::xid8 ORDER BY e.xid, e.seq LIMIT :limit::integer) o
    ORDER BY o.xid, o.seq LIMIT :limit) z
  CROSS JOIN LATERAL (SELECT * FROM romancy.events e WHERE e.seq = z.seq OFFSET 0) e) y
CROSS JOIN LATERAL (SELECT * FROM romancy.events e WHERE e.seq = y.seq OFFSET 0) e
WHERE y.sofar - y.size < :bytes::bigint ORDER BY y.xid, y.seq
-- Differs: LATERAL, for so many of each line.
-- name: sink_due
SELECT p.xid::text::bigint, p.line, p.attempts, p.since, {event}
FROM (SELECT d.line FROM romancy.sink_parked d WHERE d.sink = :sink::text AND d.due_at <= :now::bigint AND {is_first}
  ORDER BY d.due_at LIMIT :lines::integer) l
CROSS JOIN LATERAL (SELECT * FROM romancy.sink_parked p WHERE p.sink = :sink AND p.line = l.line AND NOT p.dead
  ORDER BY p.xid, p.seq LIMIT :each::integer) p
CROSS JOIN LATERAL (SELECT * FROM romancy.events e WHERE e.seq = p.seq OFFSET 0) e ORDER BY p.xid, p.seq
-- Differs: one statement.
-- name: settle_sink
WITH {write_fence},
held AS (UPDATE romancy.sinks s SET xid = :xid::bigint::text::xid8, seq = :seq::bigint, seen_at = :at::bigint FROM fence
  WHERE s.name = :sink::text AND s.owner = fence.id AND s.types = :types::text RETURNING s.name),
gone AS (DELETE FROM romancy.sink_parked p USING held WHERE p.sink = held.name AND p.seq = ANY(:gone::bigint[])),
parked AS (INSERT INTO romancy.sink_parked (sink, seq, xid, line, attempts, since, due_at, error, dead)
  SELECT held.name, x.seq, x.xid::text::xid8, x.line, x.attempts, x.since, x.due_at, x.error, x.dead
  FROM held, unnest(:seqs::bigint[], :xids::bigint[], :lines::text[], :attempts::integer[], :sinces::bigint[],
    :dues::bigint[], :errors::text[], :deads::boolean[]) AS x(seq, xid, line, attempts, since, due_at, error, dead)
  ON CONFLICT (sink, seq) DO UPDATE SET attempts = excluded.attempts, since = excluded.since, due_at = excluded.due_at,
    error = excluded.error, dead = excluded.dead)
SELECT name FROM held
-- Differs: one statement.
-- name: forget_sinks
WITH gone AS (DELETE FROM romancy.sinks WHERE seen_at + keep < :at::bigint
  AND name NOT IN (SELECT x.value FROM {listed}) RETURNING name),
types AS (DELETE FROM romancy.sink_types WHERE sink IN (SELECT name FROM gone)),
parked AS (DELETE FROM romancy.sink_parked WHERE sink IN (SELECT name FROM gone))
SELECT name FROM gone
