-- What operators look at: workers, what happened by the minute, what fails and what is late. See storage/desk.py.
-- Counts read at most :cap rows of an index. What is looked up for each row is a subquery, so that planners look it up.

-- === workers ===

-- name: all_workers
SELECT w.id, w.host, w.until, w.started_at, w.about, w.load, (SELECT count(*) FROM (SELECT 1 FROM romancy.instances i {by_owner}
    WHERE i.owner = w.id AND i.status < 9 ORDER BY i.status LIMIT :cap::integer) x)
FROM romancy.workers w ORDER BY w.started_at, w.id LIMIT :limit::integer
-- Owners that are gone: what they left is free, but keeps their names until it is claimed.
-- name: gone_owners
SELECT id FROM romancy.orphans ORDER BY id LIMIT :limit::integer
-- The workflows of instances without an owner: goes from one to the next by the index.
-- name: free_workflows
WITH RECURSIVE names (workflow, n) AS (
  SELECT (SELECT min(i.workflow) FROM romancy.instances i {by_free} WHERE i.owner IS NULL AND i.status < 9), 1
  UNION ALL SELECT (SELECT min(i.workflow) FROM romancy.instances i {by_free}
    WHERE i.owner IS NULL AND i.status < 9 AND i.workflow > names.workflow), n + 1
  FROM names WHERE names.workflow IS NOT NULL AND n < :limit::integer)
SELECT workflow FROM names WHERE workflow IS NOT NULL
-- How many of these there are, and since when: the oldest of the first ones.
-- name: free_of_workflows
SELECT x.value, (SELECT count(*) FROM (SELECT 1 FROM romancy.instances i {by_free}
    WHERE i.owner IS NULL AND i.status < 9 AND i.workflow = x.value ORDER BY i.status, i.id LIMIT :cap::integer) y),
  (SELECT min(y.created_at) FROM (SELECT i.created_at FROM romancy.instances i {by_free}
    WHERE i.owner IS NULL AND i.status < 9 AND i.workflow = x.value ORDER BY i.status, i.id LIMIT :sample::integer) y)
FROM {listed} ORDER BY x.n

-- === minutes ===

-- Adds what a worker did. Returns whether nobody has counted yet what needs attention.
-- name: add_minute
INSERT INTO romancy.minutes AS m (minute, started, completed, failed, cancelled)
SELECT :minute::bigint, :started::bigint, :completed::bigint, :failed::bigint, :cancelled::bigint WHERE {outdated} IS NULL
ON CONFLICT (minute) DO UPDATE SET started = m.started + excluded.started, completed = m.completed + excluded.completed,
  failed = m.failed + excluded.failed, cancelled = m.cancelled + excluded.cancelled
RETURNING failures IS NULL
-- name: is_surveyed
SELECT 1 FROM romancy.minutes WHERE minute = :minute::bigint AND failures IS NOT NULL
-- name: survey_minute
INSERT INTO romancy.minutes AS m (minute, started, completed, failed, cancelled, failures, blocked, retrying, overdue, queued)
SELECT :minute::bigint, 0, 0, 0, 0, :failures::integer, :blocked::integer, :retrying::integer, :overdue::integer,
  :queued::integer WHERE {outdated} IS NULL
ON CONFLICT (minute) DO UPDATE SET failures = excluded.failures, blocked = excluded.blocked, retrying = excluded.retrying,
  overdue = excluded.overdue, queued = excluded.queued WHERE m.failures IS NULL
-- name: minutes
SELECT minute, started, completed, failed, cancelled, failures, blocked, retrying, overdue, queued
FROM romancy.minutes WHERE minute >= :since::bigint ORDER BY minute LIMIT :limit::integer
-- name: forget_minutes
DELETE FROM romancy.minutes WHERE minute < :before::bigint AND {outdated} IS NULL

-- === what needs attention ===

-- Whether an attempt can begin before it is due: not if it is suspected to have killed its worker.
-- part: can_hasten
a.next_due IS NOT NULL AND a.suspected_at IS NULL AND a.op <> ''

-- part: status_of_instance
(SELECT i.status FROM romancy.instances i WHERE i.id = x.instance)
-- Whether its owner is a worker with a lease. Such a worker has begun an attempt that is due, or has it wait for a slot.
-- part: has_live_owner
EXISTS (SELECT 1 FROM romancy.workers w WHERE w.id = (SELECT i.owner FROM romancy.instances i WHERE i.id = x.instance)
  AND w.until >= :now::bigint)
-- name: oldest_queued
SELECT created_at FROM romancy.instances i {by_status} WHERE i.status = 8 ORDER BY i.created_at LIMIT 1
-- name: count_deliveries
SELECT count(*) FROM (SELECT 1 FROM romancy.deliveries d LIMIT :cap::integer) x
-- Looking up the status of thousands of instances takes long. Few are blocked, so that these are looked up instead.
-- part: some_blocked
(SELECT i.id FROM romancy.instances i {by_status} WHERE i.status >= 9 AND i.status <= 9 ORDER BY i.status, i.created_at
  LIMIT :few::integer) b
-- How many attempts wait or run, of how many instances, how many of these are blocked, and when the next one is due.
-- name: count_retrying
SELECT count(*), count(DISTINCT x.instance), (SELECT count(*) FROM {some_blocked} WHERE (SELECT 1 FROM romancy.attempts a
    WHERE a.instance = b.id AND a.next_due IS NOT NULL LIMIT 1) IS NOT NULL),
  (SELECT a.next_due FROM romancy.attempts a {by_attempt} WHERE a.next_due > :now::bigint ORDER BY a.next_due LIMIT 1)
FROM (SELECT a.instance FROM romancy.attempts a {by_attempt} WHERE a.next_due IS NOT NULL ORDER BY a.next_due LIMIT :cap::integer) x
-- How many waits are late, and how many of these are of blocked instances.
-- name: count_late_waits
SELECT (SELECT count(*) FROM (SELECT 1 FROM romancy.waits w {by_due} WHERE w.due_at < :before::bigint
    ORDER BY w.due_at LIMIT :cap::integer) x),
  coalesce((SELECT sum((SELECT count(*) FROM romancy.waits w WHERE w.instance = b.id AND +w.due_at < :before)) FROM {some_blocked}), 0)::bigint
-- How many attempts should have begun, and how many of these are not running.
-- name: count_late_retries
SELECT count(*), count(CASE WHEN {status_of_instance} < 9 AND NOT {has_live_owner} THEN 1 END)
FROM (SELECT a.instance FROM romancy.attempts a {by_attempt} WHERE a.next_due < :before::bigint
  ORDER BY a.next_due LIMIT :few::integer) x
-- part: workflow_of_instance
(SELECT i.workflow FROM romancy.instances i WHERE i.id = x.instance)
-- Lists by due time read at most :cap rows. The last of these is returned even if it is not to be shown: the next read
-- goes on after it.
-- name: retrying
SELECT * FROM (SELECT {status_of_instance} < 9 AS is_shown, x.line, x.instance, {workflow_of_instance}, x.op, x.n, x.next_due,
    x.first_at, x.error, {has_live_owner}
  FROM (SELECT a.*, row_number() OVER () AS line
    FROM (SELECT a.instance, a.op, a.n, a.next_due, a.first_at, substr(a.error, 1, 4096) AS error
      FROM romancy.attempts a {by_attempt} WHERE a.next_due IS NOT NULL
        AND (a.next_due, a.instance, a.op) > (:after_due::bigint, :after_instance::text, :after_op::text)
      ORDER BY a.next_due, a.instance, a.op LIMIT :cap::integer) a) x) y
WHERE y.is_shown OR y.line = :cap LIMIT :limit::integer
-- name: late_waits
SELECT * FROM (SELECT {status_of_instance} < 9 AS is_shown, x.line, x.instance, {workflow_of_instance}, x.op,
    CASE WHEN x.size = 0 THEN 'timer' ELSE 'event' END, x.due_at, x.location
  FROM (SELECT w.*, row_number() OVER () AS line
    FROM (SELECT w.instance, w.op, length(w.spec) AS size, w.due_at, w.location
      FROM romancy.waits w {by_due} WHERE w.due_at < :before::bigint
        AND (w.due_at, w.instance, w.op) > (:after_due::bigint, :after_instance::text, :after_op::text)
      ORDER BY w.due_at, w.instance, w.op LIMIT :cap::integer) w) x) y
WHERE y.is_shown OR y.line = :cap LIMIT :limit::integer
-- name: late_retries
SELECT * FROM (SELECT {status_of_instance} < 9 AND NOT {has_live_owner} AS is_shown, x.line, x.instance,
    {workflow_of_instance}, x.op, 'retry', x.next_due, ''
  FROM (SELECT a.*, row_number() OVER () AS line
    FROM (SELECT a.instance, a.op, a.next_due FROM romancy.attempts a {by_attempt} WHERE a.next_due < :before::bigint
        AND (a.next_due, a.instance, a.op) > (:after_due::bigint, :after_instance::text, :after_op::text)
      ORDER BY a.next_due, a.instance, a.op LIMIT :cap::integer) a) x) y
WHERE y.is_shown OR y.line = :cap LIMIT :limit::integer

-- The newest instances with a status, with the beginning and the end of their errors. The status is given as a range:
-- if nearly all rows have the same one, the planner would look for the others from the newest instance on.
-- name: failures
SELECT i.id, i.workflow, i.status, substr(i.error, 1, 1024),
  substr(i.error, CASE WHEN length(i.error) > 200 THEN length(i.error) - 199 ELSE 1 END), i.created_at,
  coalesce(i.finished_at, i.updated_at)
FROM romancy.instances i {by_status} WHERE i.status >= :status::smallint AND i.status <= :status
ORDER BY i.status DESC, i.created_at DESC, i.id DESC LIMIT :limit::integer
