-- Retention, as far as both databases run the same: which events are kept for whom. See storage/interests.py.

-- name: interests
SELECT workflow, type, next, kind, since FROM romancy.interests
-- The code of a workflow waits for many types, so it may wait for any.
-- name: open_interest
UPDATE romancy.interests SET kind = 2 WHERE workflow = :workflow::text AND type = '*' AND kind <> 2
-- name: settle_interest
UPDATE romancy.interests SET kind = 1 WHERE workflow = :workflow::text AND type = '*' AND kind = 0
-- The oldest instance of each workflow that has not completed. Goes from one workflow to the next by the index: no other
-- has this order, so that the planner can't choose one that has to skip a lot.
-- name: oldest_instances
WITH RECURSIVE names (workflow) AS (SELECT (SELECT i.workflow FROM romancy.instances i {by_oldest}
    WHERE i.status + 0 <> 10 AND i.workflow > '' ORDER BY i.workflow, i.created_at LIMIT 1)
  UNION ALL SELECT (SELECT i.workflow FROM romancy.instances i {by_oldest}
    WHERE i.status + 0 <> 10 AND i.workflow > n.workflow ORDER BY i.workflow, i.created_at LIMIT 1)
  FROM names n WHERE n.workflow IS NOT NULL)
SELECT n.workflow, (SELECT i.created_at FROM romancy.instances i {by_oldest}
  WHERE i.status + 0 <> 10 AND i.workflow >= n.workflow ORDER BY i.workflow, i.created_at LIMIT 1)
FROM names n WHERE n.workflow IS NOT NULL
-- name: oldest_of_workflow
SELECT i.id FROM romancy.instances i {by_oldest} WHERE i.status + 0 <> 10 AND i.workflow = :workflow::text
ORDER BY i.created_at LIMIT 1
-- The oldest event of each type, except addressed ones, in the same way.
-- name: oldest_events
WITH RECURSIVE types (type, n) AS (SELECT (SELECT e.type FROM romancy.events e {by_age}
    WHERE e.target IS NULL AND e.expires_at IS NULL AND e.type > :after::text ORDER BY e.type, e.accepted_at LIMIT 1), 1
  UNION ALL SELECT (SELECT e.type FROM romancy.events e {by_age}
    WHERE e.target IS NULL AND e.expires_at IS NULL AND e.type > t.type ORDER BY e.type, e.accepted_at LIMIT 1), t.n + 1
  FROM types t WHERE t.type IS NOT NULL AND t.n < :limit::integer)
SELECT t.type, (SELECT e.accepted_at FROM romancy.events e {by_age}
  WHERE e.target IS NULL AND e.expires_at IS NULL AND e.type >= t.type ORDER BY e.type, e.accepted_at LIMIT 1)
FROM types t WHERE t.type IS NOT NULL
-- name: count_old_events
SELECT count(*) FROM (SELECT 1 FROM romancy.events e {by_age} WHERE e.target IS NULL AND e.expires_at IS NULL AND e.type = :type::text
  AND e.accepted_at < :before::bigint LIMIT :most::integer) x
-- When an instance of each workflow last completed, of those that ended last.
-- name: last_completed
SELECT x.workflow, max(x.finished_at) FROM (SELECT i.workflow, i.finished_at, i.status FROM romancy.instances i
  WHERE i.finished_at IS NOT NULL ORDER BY i.finished_at DESC LIMIT :limit::integer) x
WHERE x.status = 10 GROUP BY x.workflow
-- name: completed_of
SELECT i.workflow, max(i.finished_at) FROM {listed} JOIN romancy.instances i ON i.id = x.value
WHERE i.status = 10 GROUP BY i.workflow
-- No open wait takes an event after it expired. Only this statement removes events that expire: their ids are kept for
-- duplicates, for as long after they expired as others are kept after they were accepted.
-- name: expired_events
SELECT e.seq FROM romancy.events e WHERE e.expires_at < :before::bigint AND e.accepted_at < :before
  AND {handled} ORDER BY e.expires_at LIMIT :limit::integer
-- Addressed events in the order of acceptance, a page at a time, and whether each is old and of no use to its addressee.
-- With `status` instead of EXISTS, the planner can't decide to read all instances.
-- name: addressed_events
SELECT e.seq, e.accepted_at, CASE WHEN e.accepted_at < :before::bigint AND e.expires_at IS NULL
  AND coalesce((SELECT i.status FROM romancy.instances i WHERE i.id = e.target), 10) = 10 THEN {handled} ELSE false END
FROM romancy.events e {by_address} WHERE e.target IS NOT NULL AND e.seq > :after::bigint ORDER BY e.seq LIMIT :limit::integer
-- The oldest addressed events whose addressees have not completed, counted by type and addressee.
-- name: held_for_addressees
SELECT x.type, count(*), min(x.accepted_at), (SELECT i.workflow FROM romancy.instances i WHERE i.id = x.target), x.target
FROM (SELECT e.type, e.target, e.accepted_at, e.expires_at FROM romancy.events e {by_address}
  WHERE e.target IS NOT NULL AND e.seq > 0 ORDER BY e.seq LIMIT :most::integer) x
WHERE x.accepted_at < :before::bigint AND x.expires_at IS NULL GROUP BY x.type, x.target
HAVING coalesce((SELECT i.status FROM romancy.instances i WHERE i.id = x.target), 10) <> 10
ORDER BY 3, 5, 1 LIMIT :limit::integer
-- name: cuttable_events
SELECT e.seq, e.type, e.accepted_at FROM romancy.events e WHERE e.accepted_at < :before::bigint
  AND e.expires_at IS NULL AND {handled} ORDER BY e.accepted_at LIMIT :limit::integer
-- part: forgettable
e.expires_at IS NULL AND {handled} AND {untaken}
-- name: cuts
SELECT type, upto FROM romancy.cuts
