-- Retention on PostgreSQL; see retention.sql.

-- Differs: PostgreSQL finds the right index by itself.
-- part: by_oldest
-- Differs: PostgreSQL finds the right index by itself.
-- part: by_age
-- Differs: PostgreSQL finds the right index by itself.
-- part: by_address
-- Differs: events can be left undispatched.
-- part: handled
NOT EXISTS (SELECT 1 FROM romancy.deliveries d WHERE d.event = e.seq)
  AND NOT EXISTS (SELECT 1 FROM romancy.undispatched u WHERE u.event = e.seq) AND {relayed}
-- Events that no instance may take again after a retry.
-- Differs: OFFSET 0 keeps the planner from joining, for which it would read whole tables.
-- part: untaken
NOT EXISTS (SELECT 1 FROM romancy.consumed c WHERE c.event = e.seq
  AND EXISTS (SELECT 1 FROM romancy.instances i WHERE i.id = c.instance AND i.status <> 10 OFFSET 0) OFFSET 0)
-- Differs: several types at once.
-- name: prunable_events
SELECT e.seq FROM unnest(:types::text[], :befores::bigint[]) AS x(type, before) CROSS JOIN LATERAL
  (SELECT e.seq FROM romancy.events e WHERE e.type = x.type AND e.target IS NULL AND e.accepted_at < x.before
    AND {forgettable} ORDER BY e.accepted_at LIMIT :limit::integer) e
LIMIT :limit
-- A workflow that may wait for any type need not learn others.
-- name: insert_interests
INSERT INTO romancy.interests (workflow, type, next, kind, since)
SELECT x.workflow, x.type, x.next, x.kind, :at::bigint
FROM unnest(:workflows::text[], :types::text[], :nexts::text[], :kinds::smallint[]) AS x(workflow, type, next, kind)
WHERE {outdated} IS NULL AND NOT (:learned::boolean AND x.kind = 3 AND x.type <> '' AND EXISTS (SELECT 1 FROM romancy.interests i
  WHERE i.workflow = x.workflow AND i.type = '*' AND i.kind = 2)) ORDER BY 1, 2, 3
ON CONFLICT (workflow, type, next) DO UPDATE SET kind = excluded.kind
WHERE excluded.kind IN (1, 2) AND interests.kind <> excluded.kind
-- name: insert_cuts
INSERT INTO romancy.cuts (type, upto) SELECT x.type, x.upto FROM unnest(:types::text[], :uptos::bigint[]) AS x(type, upto)
ORDER BY 1 ON CONFLICT (type) DO UPDATE SET upto = greatest(cuts.upto, excluded.upto)
-- name: targets_of_events
SELECT e.source, e.id, e.target FROM unnest(:sources::text[], :ids::text[]) AS x(source, id)
CROSS JOIN LATERAL (SELECT * FROM romancy.events e WHERE e.source = x.source AND e.id = x.id OFFSET 0) e
