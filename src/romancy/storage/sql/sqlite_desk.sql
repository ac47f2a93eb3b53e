-- What operators look at, as far as SQLite differs.

-- Differs: SQLite must be told which index has the right order.
-- part: by_owner
INDEXED BY romancy.instances_owner
-- Differs: SQLite must be told which index has the right order.
-- part: by_free
INDEXED BY romancy.instances_free
-- Differs: SQLite must be told which index has the right order.
-- part: by_due
INDEXED BY romancy.waits_due
-- Differs: SQLite must be told which index has the right order.
-- part: by_attempt
INDEXED BY romancy.attempts_due
-- The workflows of open instances of these owners, of the first ones.
-- Differs: CROSS JOIN fixes the order of the tables.
-- name: owned_workflows
SELECT y.workflow, count(*), min(y.created_at) FROM (SELECT i.workflow, i.created_at FROM {listed}
  CROSS JOIN romancy.instances i INDEXED BY romancy.instances_owner ON i.owner = x.value AND i.status < 9 LIMIT :cap) y
GROUP BY y.workflow ORDER BY y.workflow
-- The operations of entries, which are given as "number:instance".
-- Differs: the functions for strings.
-- name: ops_of_entries
SELECT x.value, h.op FROM {listed} CROSS JOIN romancy.history h ON h.instance = substr(x.value, instr(x.value, ':') + 1)
  AND h.n = CAST(substr(x.value, 1, instr(x.value, ':') - 1) AS INTEGER)
