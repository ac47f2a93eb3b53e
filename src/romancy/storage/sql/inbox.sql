-- The inbox: starts and events that callers left in their own transactions (storage/guests.py), for a worker to move on.

-- What is to be moved, oldest first.
-- name: inbox
SELECT b.id, b.kind, b.at, b.source, b.event, b.type, b.subject, b.time, b.target, b.attrs, b.data, b.expires_at,
  b.instance, b.workflow, b.input_kind, b.deadline, b.options, {seen}
FROM romancy.inbox b WHERE b.refused IS NULL ORDER BY b.id LIMIT :limit::integer
-- name: refuse_arrival
UPDATE romancy.inbox SET refused = :reason::text WHERE id = :number::bigint RETURNING id

-- For people.
-- name: inbox_list
SELECT b.id, b.kind, b.at, b.source, b.event, b.type, b.instance, b.workflow, b.refused FROM romancy.inbox b
WHERE b.id > :after::bigint ORDER BY b.id LIMIT :limit::integer
-- name: inbox_forget
DELETE FROM romancy.inbox WHERE id = :id::bigint AND refused IS NOT NULL RETURNING id
