-- What instances emit, on PostgreSQL.

-- part: emitted_rows
unnest(:emit_instances::text[], :emit_seqs::bigint[], :emit_topics::text[], :emit_ns::bigint[], :emit_counts::integer[],
  :emit_kinds::smallint[], :emit_ops::text[], :emit_runs::integer[], :emit_ats::bigint[], :emit_sizes::bigint[],
  :emit_datas::bytea[]) AS x(instance, seq, topic, n, count, kind, op, run, at, size, data)
-- What the code of workflows emits, in the group commit. No other write of the instance's emissions is under way then,
-- so a conflict must never happen, and the statement fails.
-- part: write_emitted
emitted AS (INSERT INTO romancy.emissions (instance, seq, topic, n, count, kind, op, run, at, size, data)
  SELECT x.* FROM {emitted_rows} WHERE x.instance IN (SELECT id FROM applied))
-- What activities emit, with the fence of the group commit. The instances' rows are not locked: their owner waits for
-- this before it gives one up, or ends it. A takeover waits for the lock on the worker's row. So rows that are there can
-- only come from an earlier submission, perhaps still running on a lost connection: hence ON CONFLICT.
-- name: emit
WITH {write_fence},
mine AS MATERIALIZED (SELECT x.id FROM unnest(:ids::text[]) AS x(id), fence,
    LATERAL (SELECT owner, status FROM romancy.instances i WHERE i.id = x.id OFFSET 0) i
  WHERE i.owner = fence.id AND i.status < 9),
stored AS (INSERT INTO romancy.emissions (instance, seq, topic, n, count, kind, op, run, at, size, data)
  SELECT x.* FROM {emitted_rows} WHERE x.instance IN (SELECT id FROM mine) ORDER BY x.instance, x.seq
  ON CONFLICT DO NOTHING RETURNING instance)
SELECT (SELECT count(*) FROM fence) AS alive, ARRAY(SELECT id FROM mine) AS mine,
  (SELECT count(*) FROM stored) AS stored, {time} AS now
-- Instances that do not have these very rows.
-- name: strange_emissions
SELECT DISTINCT x.instance FROM {emitted_rows}
LEFT JOIN LATERAL (SELECT * FROM romancy.emissions e WHERE e.instance = x.instance AND e.seq = x.seq OFFSET 0) e ON true
WHERE (e.topic, e.n, e.count, e.kind, e.op, e.run, e.data) IS DISTINCT FROM (x.topic, x.n, x.count, x.kind, x.op, x.run, x.data)
-- name: emission_standings
SELECT x.id, o.topic, o.op, o.run, t.n, t.size, l.last FROM unnest(:ids::text[]) AS x(id)
CROSS JOIN LATERAL (SELECT e.topic, e.op, max(e.run) AS run FROM romancy.emissions e
  WHERE e.instance = x.id AND e.kind > 0 GROUP BY e.topic, e.op OFFSET 0) o
CROSS JOIN LATERAL (SELECT e.n + e.count - 1 AS n, e.size FROM romancy.emissions e
  WHERE e.instance = x.id AND e.topic = o.topic ORDER BY e.n DESC LIMIT 1) t
CROSS JOIN LATERAL (SELECT e.seq + e.count - 1 AS last FROM romancy.emissions e
  WHERE e.instance = x.id ORDER BY e.seq DESC LIMIT 1) l
-- The row with the first value that is wanted may begin before it.
-- name: emissions_of_topics
SELECT x.k, e.* FROM unnest(:keys::integer[], :instances::text[], :topics::text[], :afters::bigint[])
  AS x(k, instance, topic, after)
CROSS JOIN LATERAL (SELECT f.n FROM (SELECT max(e.n) AS n FROM romancy.emissions e
  WHERE e.instance = x.instance AND e.topic = x.topic AND e.n <= x.after + 1) f OFFSET 0) f
CROSS JOIN LATERAL (SELECT e.instance, e.seq, e.topic, e.n, e.count, e.kind, e.op, e.run, e.at, e.size, e.data
  FROM romancy.emissions e WHERE e.instance = x.instance AND e.topic = x.topic AND e.n >= coalesce(f.n, 0)
    AND e.n + e.count - 1 > x.after ORDER BY e.n LIMIT :limit::integer) e ORDER BY x.k, e.n
-- name: emissions_of_instances
SELECT x.k, e.* FROM unnest(:keys::integer[], :instances::text[], :afters::bigint[]) AS x(k, instance, after)
CROSS JOIN LATERAL (SELECT f.seq FROM (SELECT max(e.seq) AS seq FROM romancy.emissions e
  WHERE e.instance = x.instance AND e.seq <= x.after + 1) f OFFSET 0) f
CROSS JOIN LATERAL (SELECT e.instance, e.seq, e.topic, e.n, e.count, e.kind, e.op, e.run, e.at, e.size, e.data
  FROM romancy.emissions e WHERE e.instance = x.instance AND e.seq >= coalesce(f.seq, 0)
    AND e.seq + e.count - 1 > x.after ORDER BY e.seq LIMIT :limit::integer) e ORDER BY x.k, e.seq
-- name: emission_topics
SELECT t.topic, l.n, l.at FROM (SELECT DISTINCT e.topic FROM romancy.emissions e
  WHERE e.instance = :instance::text AND e.kind > 0 OFFSET 0) t
CROSS JOIN LATERAL (SELECT e.n + e.count - 1 AS n, e.at FROM romancy.emissions e
  WHERE e.instance = :instance AND e.topic = t.topic ORDER BY e.n DESC LIMIT 1) l ORDER BY 1
-- name: ended_instances
SELECT finished_at, id FROM romancy.instances WHERE finished_at >= :since::bigint AND finished_at < :before::bigint
  AND (finished_at > :since OR id > :id::text) ORDER BY finished_at, id LIMIT :limit::integer
-- The last row of each topic stays, without its values. An instance that is retried meanwhile is left as it is.
-- name: hollow_emissions
WITH ended AS MATERIALIZED (SELECT id FROM romancy.instances WHERE id = ANY(:ids::text[]) AND status >= 10
  AND coalesce(finished_at, 9223372036854775807) < :before::bigint ORDER BY id FOR UPDATE SKIP LOCKED)
UPDATE romancy.emissions e SET kind = 3, data = ''::bytea WHERE e.instance = ANY(:ids) AND e.instance IN (SELECT id FROM ended)
  AND e.kind <> 3 AND NOT EXISTS (SELECT 1 FROM romancy.emissions l
    WHERE l.instance = e.instance AND l.topic = e.topic AND l.n > e.n OFFSET 0)
-- name: remove_emissions
WITH ended AS MATERIALIZED (SELECT id FROM romancy.instances WHERE id = ANY(:ids::text[]) AND status >= 10
  AND coalesce(finished_at, 9223372036854775807) < :before::bigint ORDER BY id FOR UPDATE SKIP LOCKED),
old AS MATERIALIZED (SELECT o.* FROM ended CROSS JOIN LATERAL (SELECT e.instance, e.seq FROM romancy.emissions e
  WHERE e.instance = ended.id AND e.kind <> 3 LIMIT :limit::integer) o LIMIT :limit)
DELETE FROM romancy.emissions e USING old WHERE e.instance = old.instance AND e.seq = old.seq RETURNING e.instance
-- The same for instances that are to be removed. They are, once they have none left.
-- name: delete_emissions
WITH gone AS MATERIALIZED (SELECT id FROM romancy.instances WHERE id = ANY(:ids::text[]) AND status >= 10
  AND coalesce(finished_at, 9223372036854775807) < CASE status WHEN 11 THEN :failed::bigint ELSE :before::bigint END
  ORDER BY id FOR UPDATE SKIP LOCKED),
old AS MATERIALIZED (SELECT o.* FROM gone CROSS JOIN LATERAL (SELECT e.instance, e.seq FROM romancy.emissions e
  WHERE e.instance = gone.id LIMIT :limit::integer) o LIMIT :limit)
DELETE FROM romancy.emissions e USING old WHERE e.instance = old.instance AND e.seq = old.seq RETURNING e.instance
