-- Sinks on PostgreSQL. A sink reads events in the order (xid, seq), and only below the oldest running transaction: no
-- event can come in before its position any more.

-- Differs: transactions that run now come after it.
-- part: present
pg_snapshot_xmin(pg_current_snapshot()), 0
-- Differs: the order of events.
-- part: beyond_sink
(e.xid, e.seq) > (s.xid, s.seq)
-- Differs: holds the worker's row.
-- name: claim_sink
WITH {write_fence}
UPDATE romancy.sinks s SET owner = fence.id, seen_at = :at::bigint FROM fence
WHERE s.name = :sink::text AND (s.owner IS NULL OR NOT EXISTS (SELECT 1 FROM romancy.workers w WHERE w.id = s.owner))
RETURNING s.xid::text::bigint, s.seq
-- Differs: the order of events, and the oldest running transaction.
-- name: sink_events
SELECT e.xid::text::bigint, e.origin IS NOT NULL, {event}
FROM (SELECT y.xid, y.seq FROM {listed} CROSS JOIN LATERAL (SELECT e.xid, e.seq FROM romancy.events e
    WHERE e.type = x.value AND e.target IS NULL AND (e.xid, e.seq) > (:xid::bigint::text::xid8, :seq::bigint)
      AND e.xid < pg_snapshot_xmin(pg_current_snapshot()) ORDER BY e.xid, e.seq LIMIT :limit::integer) y
  ORDER BY y.xid, y.seq LIMIT :limit) z
CROSS JOIN LATERAL (SELECT * FROM romancy.events e WHERE e.seq = z.seq OFFSET 0) e ORDER BY z.xid, z.seq
-- Differs: one statement.
-- name: settle_sink
WITH {write_fence},
held AS (UPDATE romancy.sinks s SET xid = :xid::bigint::text::xid8, seq = :seq::bigint, seen_at = :at::bigint FROM fence
  WHERE s.name = :sink::text AND s.owner = fence.id RETURNING s.name),
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
