-- The inbox: starts and events that callers left in their own transactions (storage/guests.py), for a worker to move on.

-- What is to be moved after a number, oldest first: at least one, and no more once there are this many bytes.
-- name: inbox
SELECT b.id, b.kind, b.at, b.source, b.event, b.type, b.subject, b.time, b.target, b.attrs, b.data, b.expires_at,
  b.instance, b.workflow, b.input_kind, b.deadline, b.options, b.seen::text
FROM (SELECT y.id, sum(y.size) OVER (ORDER BY y.id) - y.size AS before
  FROM (SELECT id, coalesce(length(data), 0) AS size FROM romancy.inbox
    WHERE refused IS NULL AND id > :after::bigint ORDER BY id LIMIT :limit::integer) y) x
JOIN romancy.inbox b ON b.id = x.id WHERE x.before < :bytes::bigint ORDER BY b.id
-- name: inbox_has_some
SELECT 1 FROM romancy.inbox WHERE refused IS NULL LIMIT 1
-- name: refuse_arrival
UPDATE romancy.inbox SET refused = :reason::text, refused_at = :at::bigint WHERE id = :number::bigint RETURNING id
-- name: prune_refused
DELETE FROM romancy.inbox WHERE id IN (SELECT b.id FROM romancy.inbox b
  WHERE b.refused IS NOT NULL AND b.refused_at < :before::bigint ORDER BY b.refused_at LIMIT :limit::integer)
RETURNING id

-- For people.
-- name: inbox_list
SELECT b.id, b.kind, b.at, b.source, b.event, b.type, b.instance, b.workflow, b.refused FROM romancy.inbox b
WHERE b.id > :after::bigint ORDER BY b.id LIMIT :limit::integer
-- How many wait, and how many were refused, each counted up to a limit.
-- name: inbox_counts
SELECT (SELECT count(*) FROM (SELECT 1 FROM romancy.inbox WHERE refused IS NULL LIMIT :cap::integer) w),
  (SELECT count(*) FROM (SELECT 1 FROM romancy.inbox WHERE refused IS NOT NULL LIMIT :cap) r)
-- name: inbox_forget
DELETE FROM romancy.inbox WHERE id = :id::bigint AND refused IS NOT NULL RETURNING id
