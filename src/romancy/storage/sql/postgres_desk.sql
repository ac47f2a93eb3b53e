-- What operators look at, as far as PostgreSQL differs.

-- Differs: PostgreSQL finds the index by itself.
-- part: by_owner
-- Differs: PostgreSQL finds the index by itself.
-- part: by_free
-- Differs: PostgreSQL finds the index by itself.
-- part: by_due
-- Differs: PostgreSQL finds the index by itself.
-- part: by_attempt
-- The workflows of open instances of these owners, of the first ones.
-- Differs: LATERAL fixes the order of the tables.
-- name: owned_workflows
SELECT y.workflow, count(*), min(y.created_at) FROM (SELECT i.workflow, i.created_at FROM {listed} CROSS JOIN LATERAL
    (SELECT i.workflow, i.created_at FROM romancy.instances i WHERE i.owner = x.value AND i.status < 9
     ORDER BY i.status LIMIT :cap::integer) i LIMIT :cap) y
GROUP BY y.workflow ORDER BY y.workflow
-- The operations of entries, which are given as "number:instance".
-- Differs: the functions for strings, and LATERAL.
-- name: ops_of_entries
SELECT x.value, h.op FROM {listed} CROSS JOIN LATERAL (SELECT h.op FROM romancy.history h
  WHERE h.instance = substr(x.value, strpos(x.value, ':') + 1) AND h.n = split_part(x.value, ':', 1)::integer OFFSET 0) h
