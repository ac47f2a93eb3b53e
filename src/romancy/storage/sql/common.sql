-- Statements that both databases run; see __init__.py for the notation. The others are in the files of the dialects.

-- part: instance
i.id, i.workflow, i.status, i.owner, i.version, i.input, i.input_kind, i.output, i.error, i.deadline, i.description,
  i.created_at, i.updated_at, i.finished_at, i.generation, i.base, i.began_at, i.parent, i.parent_op,
  i.builds, i.seed, i.limited_from, i.schedule, i.scheduled_at, i.queue, i.queue_key, i.priority
-- part: event
e.seq, e.source, e.id, e.type, e.subject, e.time, e.target, e.attrs, e.data, e.accepted_at, e.expires_at
-- The workflow is looked up by id for each row: with a join, the planner may read all instances in order first.
-- part: wait
w.instance, (SELECT i.workflow FROM romancy.instances i WHERE i.id = w.instance) AS workflow, w.op,
  CASE WHEN length(w.spec) = 0 THEN 'timer' ELSE 'event' END AS kind, w.spec, w.created_at, w.due_at AS due, w.location,
  NULL::bytea AS error
-- The statuses of instances that have work to do, and of those that only wait; see STATUS_CODES. The indexes are those of
-- open instances (below 9). The narrower bound comes first: SQLite searches an index only up to the first one.
-- part: has_work
i.status < 2 AND i.status < 9
-- part: only_waits
i.status >= 2 AND i.status < 8 AND i.status < 9
-- part: retry
a.instance, (SELECT i.workflow FROM romancy.instances i WHERE i.id = a.instance) AS workflow, a.op, 'retry' AS kind,
  {no_bytes} AS spec, a.first_at AS created_at, a.next_due AS due, '' AS location, a.error

-- === workers ===

-- name: schema_version
SELECT version, min_reader FROM romancy.schema_info
-- The worker was asked to stop: if it is killed from now on, that is not a death.
-- name: leave_worker
UPDATE romancy.workers SET leaving = true WHERE id = :worker::text
-- name: delete_spent_orphans
DELETE FROM romancy.orphans
WHERE NOT EXISTS (SELECT 1 FROM romancy.instances i WHERE i.owner = romancy.orphans.id AND i.status < 9)
-- Owners without a row, because it was deleted by hand. Goes from one owner to the next by the index.
-- name: orphan_unknown
WITH RECURSIVE owners (owner) AS (SELECT min(owner) FROM romancy.instances WHERE status < 9
  UNION ALL SELECT (SELECT min(i.owner) FROM romancy.instances i WHERE i.status < 9 AND i.owner > o.owner)
    FROM owners o WHERE o.owner IS NOT NULL)
INSERT INTO romancy.orphans (id, at, clean) SELECT o.owner, :at::bigint, false FROM owners o
WHERE o.owner IS NOT NULL AND NOT EXISTS (SELECT 1 FROM romancy.workers w WHERE w.id = o.owner) ON CONFLICT DO NOTHING
-- name: deaths
SELECT since, at FROM romancy.deaths ORDER BY at DESC LIMIT :most::integer
-- name: tallies
SELECT culprit, min(since), sum(tried_alone)::bigint, sum(alone)::bigint, sum(ended)::bigint FROM (
  SELECT culprit, suspected_at AS since, tried_alone, alone, 0 AS ended FROM romancy.attempts
  WHERE suspected_at > :after::bigint AND tried_alone > 0
  UNION ALL SELECT culprit, since, tried_alone, alone, 1 FROM romancy.trials WHERE at > :after) x GROUP BY culprit
-- name: forget_deaths
DELETE FROM romancy.deaths WHERE at < :before::bigint
-- name: forget_trials
DELETE FROM romancy.trials WHERE at < :before::bigint
-- name: prunable_instances
SELECT id FROM romancy.instances WHERE finished_at < :latest::bigint
  AND finished_at < CASE status WHEN 11 THEN :failed::bigint ELSE :before::bigint END ORDER BY finished_at LIMIT :limit::integer
-- name: insert_shape
INSERT INTO romancy.shapes (type, fields) VALUES (:type::text, :fields::text) ON CONFLICT DO NOTHING

-- === instances ===

-- name: instance
SELECT {instance} FROM romancy.instances i WHERE i.id = :id::text
-- name: known_instances
SELECT i.id FROM {listed} JOIN romancy.instances i ON i.id = x.value
-- name: known_children
SELECT i.id, i.parent_op, i.status >= 10 FROM {listed} JOIN romancy.instances i ON i.id = x.value WHERE i.parent = :parent::text
-- name: started_children_of_parent
SELECT i.parent_op, i.id FROM romancy.instances i {by_parent} WHERE i.parent = :parent::text AND i.parent_op IS NOT NULL
-- name: finished_instances
SELECT i.id, i.status, i.output, i.error FROM {listed} JOIN romancy.instances i ON i.id = x.value WHERE i.status >= 9
-- name: history
SELECT n, kind, op, at, input, payload, event FROM romancy.history
WHERE instance = :instance::text AND n > (SELECT base FROM romancy.instances WHERE id = :instance) ORDER BY n

-- === the catalog: what people look at ===

-- name: worker
SELECT id, host, until, started_at FROM romancy.workers WHERE id = :worker::text
-- name: live_workers
SELECT id, about FROM romancy.workers WHERE until >= :now::bigint ORDER BY until DESC LIMIT :limit::integer
-- name: misfits
SELECT event, op, error FROM romancy.misfits WHERE instance = :instance::text ORDER BY event LIMIT 100

-- The ORDER BY does not affect the count. Without it, the planner expects to find enough rows by reading the table from
-- its start. A status is given as a range: if nearly all rows have the same status, the planner would look for the
-- others from the oldest instance on.
-- name: count_statuses
SELECT x.value, (SELECT count(*) FROM (SELECT 1 FROM romancy.instances i {by_status} WHERE i.status >= x.value
  AND i.status <= x.value ORDER BY i.status, i.created_at LIMIT :cap::integer) y) AS n FROM {codes}
-- name: rates
SELECT (SELECT count(*) FROM (SELECT 1 FROM romancy.instances WHERE created_at > :since::bigint
  ORDER BY created_at LIMIT :cap::integer) x),
  (SELECT count(*) FROM (SELECT 1 FROM romancy.instances WHERE finished_at > :since ORDER BY finished_at LIMIT :cap) x),
  (SELECT count(*) FROM (SELECT 1 FROM romancy.events WHERE accepted_at > :since ORDER BY accepted_at LIMIT :cap) x)

-- Lists of instances. Each status has its own range of an index, and is searched separately.
-- part: summary
i.id, i.workflow, i.status, CASE WHEN length(i.error) <= 65536 THEN i.error END, i.description, i.created_at,
  i.finished_at, substr(i.output, 1, 400)
-- part: created_between
(i.created_at, i.id) >= (:low_at::bigint, :low_id::text) AND (i.created_at, i.id) < (:high_at::bigint, :high_id::text)
-- part: fitting
(:workflow::text IS NULL OR i.workflow = :workflow OR substr(i.workflow, 1, length(:versions::text)) = :versions)
  AND (:parent::text IS NULL OR i.parent = :parent)
  AND (:queue::text IS NULL OR i.queue = :queue) AND (:queue_key::text IS NULL OR i.queue_key = :queue_key)
  AND (:error::bytea IS NULL OR substr(i.error, 1, length(:error)) = :error) AND {has_text} AND {has_attributes}
-- part: newest
ORDER BY i.created_at DESC, i.id DESC LIMIT
-- name: instances
SELECT {instance} FROM romancy.instances i {by_creation} WHERE {created_between} AND {fitting} {newest} :limit::integer
-- name: instances_of_status
SELECT {instance} FROM romancy.instances i {by_status}
WHERE i.status = :status::smallint AND {created_between} AND {fitting} {newest} :limit::integer
-- name: search
SELECT {summary} FROM romancy.instances i {by_creation} WHERE {created_between} AND {fitting} {newest} :limit::integer
-- name: search_of_status
SELECT {summary} FROM romancy.instances i {by_status}
WHERE i.status = :status::smallint AND {created_between} AND {fitting} {newest} :limit::integer
-- The limit is never reached: the range is bounded. With the order, the planner reads only the range.
-- name: count
SELECT count(*) FROM (SELECT 1 FROM romancy.instances i {by_creation}
  WHERE {created_between} AND {fitting} {newest} :limit::integer) x
-- name: count_of_status
SELECT count(*) FROM (SELECT 1 FROM romancy.instances i {by_status}
  WHERE i.status = :status::smallint AND {created_between} AND {fitting} {newest} :limit::integer) x
-- How far a search gets that reads a limited number of rows.
-- name: search_bound
SELECT i.created_at, i.id FROM romancy.instances i {by_creation} WHERE {created_between} {newest} 1 OFFSET :skip::integer
-- name: search_bound_of_status
SELECT i.created_at, i.id FROM romancy.instances i {by_status}
WHERE i.status = :status::smallint AND {created_between} {newest} 1 OFFSET :skip::integer
-- The children of an instance have an index of their own. Their statuses are not in it.
-- part: of_parent
i.parent = :parent::text AND (:status::smallint IS NULL OR i.status = :status) AND {created_between}
-- name: instances_of_parent
SELECT {instance} FROM romancy.instances i {by_parent} WHERE {of_parent} AND {fitting} {newest} :limit::integer
-- name: search_of_parent
SELECT {summary} FROM romancy.instances i {by_parent} WHERE {of_parent} AND {fitting} {newest} :limit::integer
-- name: count_of_parent
SELECT count(*) FROM (SELECT 1 FROM romancy.instances i {by_parent}
  WHERE {of_parent} AND {fitting} {newest} :limit::integer) x
-- name: search_bound_of_parent
SELECT i.created_at, i.id FROM romancy.instances i {by_parent} WHERE i.parent = :parent::text AND {created_between}
{newest} 1 OFFSET :skip::integer
-- Instances with an attribute. Only instances that have one are read; the other filters are checked for each.
-- part: with_attribute
t.name = :name::text AND t.value = :value::text AND (:status::smallint IS NULL OR i.status = :status)
  AND (t.created_at, t.instance) >= (:low_at::bigint, :low_id::text)
  AND (t.created_at, t.instance) < (:high_at::bigint, :high_id::text)
-- part: newest_of_attribute
ORDER BY t.created_at DESC, t.instance DESC LIMIT
-- name: instances_of_attribute
SELECT {instance} FROM {by_attribute} WHERE {with_attribute} AND {fitting} {newest_of_attribute} :limit::integer
-- name: search_of_attribute
SELECT {summary} FROM {by_attribute} WHERE {with_attribute} AND {fitting} {newest_of_attribute} :limit::integer
-- name: count_of_attribute
SELECT count(*) FROM (SELECT 1 FROM {by_attribute}
  WHERE {with_attribute} AND {fitting} {newest_of_attribute} :limit::integer) x
-- name: search_bound_of_attribute
SELECT t.created_at, t.instance FROM romancy.attributes t WHERE t.name = :name::text AND t.value = :value::text
  AND (t.created_at, t.instance) >= (:low_at::bigint, :low_id::text)
  AND (t.created_at, t.instance) < (:high_at::bigint, :high_id::text)
{newest_of_attribute} 1 OFFSET :skip::integer
-- The order keeps the planner from reading the table.
-- name: count_attribute
SELECT count(*) FROM (SELECT 1 FROM romancy.attributes t WHERE t.name = :name::text AND t.value = :value::text
  ORDER BY t.created_at DESC, t.instance DESC LIMIT :cap::integer) x
-- name: view
SELECT (SELECT v.value FROM romancy.views v WHERE v.instance = i.id) FROM romancy.instances i WHERE i.id = :id::text
-- name: views
SELECT x.value, v.value, h.headers FROM {listed} LEFT JOIN romancy.views v ON v.instance = x.value
  LEFT JOIN romancy.headers h ON h.instance = x.value WHERE v.instance IS NOT NULL OR h.instance IS NOT NULL
-- name: attributes
SELECT t.instance, t.name, t.value FROM {listed} JOIN romancy.attributes t ON t.instance = x.value ORDER BY t.instance, t.name
-- name: summaries
SELECT {summary} FROM {listed} JOIN romancy.instances i ON i.id = x.value ORDER BY x.n

-- One instance. Long values are cut here, so that they are never sent.
-- name: whole
SELECT i.id, i.workflow, i.status, i.owner, i.version,
  CASE WHEN length(i.input) <= 65536 THEN i.input ELSE substr(i.input, 1, 4096) END, i.input_kind,
  CASE WHEN length(i.output) <= 65536 THEN i.output ELSE substr(i.output, 1, 4096) END, i.error, i.deadline,
  i.description, i.created_at, i.updated_at, i.finished_at, i.generation, i.base, i.began_at, i.parent, i.parent_op,
  i.builds, i.seed, i.limited_from, i.schedule, i.scheduled_at, i.queue, i.queue_key, i.priority,
  length(i.input), coalesce(length(i.output), 0),
  (SELECT coalesce(max(n), i.base) FROM romancy.history WHERE instance = i.id)
FROM romancy.instances i WHERE i.id = :id::text
-- name: sequences
SELECT h.instance, h.kind, h.op FROM romancy.history h WHERE h.instance IN (SELECT x.value FROM {listed}) AND h.kind <> 8
ORDER BY h.instance, h.n
-- name: undone_instances
SELECT i.id FROM {listed} JOIN romancy.instances i ON i.id = x.value WHERE EXISTS (SELECT 1 FROM romancy.history h
  WHERE h.instance = i.id AND h.n > i.base AND substr(h.op, 1, 5) = 'undo ')
-- name: parents_of_unsuccessful
SELECT x.value FROM {listed} WHERE EXISTS (SELECT 1 FROM romancy.instances i {by_parent}
  WHERE i.parent = x.value AND i.status <> 10)
-- name: shown_entries
SELECT n, kind, op, at, CASE WHEN length(input) <= 65536 THEN input ELSE substr(input, 1, 4096) END,
  CASE WHEN length(payload) <= 65536 THEN payload ELSE substr(payload, 1, 4096) END, event,
  coalesce(length(input), 0), coalesce(length(payload), 0)
FROM romancy.history WHERE instance = :instance::text AND n > :after::integer ORDER BY n LIMIT :limit::integer
-- name: retries
-- The marks of an instance's retries that follow an entry.
SELECT n, at, CASE WHEN length(input) <= 65536 THEN input ELSE substr(input, 1, 65536) END
FROM romancy.history WHERE instance = :instance::text AND n > :after::integer AND kind = 13 ORDER BY n
-- name: shown_attempts
-- The activities of an instance that failed, reported progress, or outlived a worker; '' stands for its code.
SELECT op, n, first_at, next_due, CASE WHEN length(error) <= 65536 THEN error END,
  CASE WHEN length(progress) <= 65536 THEN progress ELSE substr(progress, 1, 4096) END, coalesce(length(progress), 0)
FROM romancy.attempts WHERE instance = :instance::text AND op > '' ORDER BY op LIMIT :limit::integer

-- Waits and retries.
-- part: takes_type
(:type::text IS NULL OR (SELECT k.type FROM romancy.wait_keys k
  WHERE k.instance = w.instance AND k.op = w.op AND k.type = :type LIMIT 1) IS NOT NULL)
-- name: waits
SELECT * FROM (
  SELECT * FROM (SELECT {wait} FROM romancy.waits w
    WHERE (w.instance, w.op) > (:after_instance::text, :after_op::text) AND {takes_type}
    ORDER BY w.instance, w.op LIMIT :limit::integer) y
  UNION ALL SELECT * FROM (SELECT {retry} FROM romancy.attempts a
    WHERE (a.instance, a.op) > (:after_instance, :after_op) AND a.next_due IS NOT NULL AND :type IS NULL
    ORDER BY a.instance, a.op LIMIT :limit) z) x
ORDER BY instance, op LIMIT :limit
-- name: waits_of_instance
SELECT * FROM (
  SELECT * FROM (SELECT {wait} FROM romancy.waits w
    WHERE w.instance = :instance::text AND (w.instance, w.op) > (:after_instance::text, :after_op::text)
      AND {takes_type} ORDER BY w.op LIMIT :limit::integer) y
  UNION ALL SELECT * FROM (SELECT {retry} FROM romancy.attempts a
    WHERE a.instance = :instance AND (a.instance, a.op) > (:after_instance, :after_op) AND a.next_due IS NOT NULL
      AND :type IS NULL ORDER BY a.op LIMIT :limit) z) x
ORDER BY op LIMIT :limit
-- A parent waits for its unfinished children, unless it has ended itself.
-- name: waits_for_children
SELECT i.parent, (SELECT p.workflow FROM romancy.instances p WHERE p.id = :instance::text), i.parent_op, 'child',
  {no_bytes}, i.created_at, NULL::bigint, '', NULL::bytea, i.id, i.is_free
FROM romancy.instances i {by_parent} WHERE i.parent = :instance AND i.status < 10
  AND (SELECT p.status FROM romancy.instances p WHERE p.id = :instance) < 10
  AND (i.created_at, i.id) > (:after_at::bigint, :after_id::text) ORDER BY i.created_at, i.id LIMIT :limit::integer
-- Goes from one type to the next by the index: each can have a million waits.
-- name: wait_types
WITH RECURSIVE t(type, n) AS (SELECT min(type), 1 FROM romancy.wait_keys WHERE type > :after::text
  UNION ALL SELECT (SELECT min(k.type) FROM romancy.wait_keys k WHERE k.type > t.type), n + 1
  FROM t WHERE t.type IS NOT NULL AND n < :limit::integer)
SELECT type, (SELECT count(*) FROM (SELECT 1 FROM romancy.wait_keys k WHERE k.type = t.type
  ORDER BY k.shape, k.key LIMIT :cap::integer) y) FROM t WHERE type IS NOT NULL ORDER BY type
-- The types that instances wait for, by the keys of their waits: these are never sealed.
-- name: types_of_waits
SELECT k.instance, k.op, k.type FROM {listed} CROSS JOIN romancy.wait_keys k WHERE k.instance = x.value
ORDER BY k.instance, k.op, k.type LIMIT 10000
-- name: waits_for_type
SELECT k.shape, k.key, k.alike, {wait}
FROM romancy.wait_keys k JOIN romancy.waits w ON w.instance = k.instance AND w.op = k.op
WHERE k.type = :type::text AND (k.shape, k.key, k.follows, k.instance, k.alike, k.op)
  > (:shape::integer, :key::bytea, :follows::boolean, :instance::text, :alike::bytea, :op::text)
ORDER BY k.shape, k.key, k.follows, k.instance, k.alike, k.op LIMIT :limit::integer
-- name: coming
SELECT * FROM (
  SELECT * FROM (SELECT {wait} FROM romancy.waits w WHERE w.due_at > :after::bigint AND w.due_at <= :before::bigint
    ORDER BY w.due_at LIMIT :limit::integer) y
  UNION ALL SELECT * FROM (SELECT {retry} FROM romancy.attempts a WHERE a.next_due > :after AND a.next_due <= :before
    ORDER BY a.next_due LIMIT :limit) z) x
ORDER BY due LIMIT :limit

-- Events, newest first, with the size of their data.
-- part: whole_event
{event}, coalesce(length(e.data), 0), e.differed_at, e.origin
-- part: shown_event
e.seq, e.source, e.id, e.type, e.subject, e.time, e.target, e.attrs,
  CASE WHEN length(e.data) <= 65536 THEN e.data ELSE substr(e.data, 1, 4096) END, e.accepted_at, e.expires_at,
  coalesce(length(e.data), 0), e.differed_at, e.origin
-- part: unmatched
(NOT :unmatched::boolean OR (SELECT c.event FROM romancy.consumed c WHERE c.event = e.seq LIMIT 1) IS NULL)
-- part: last_events
{unmatched} ORDER BY e.seq DESC LIMIT :limit::integer
-- part: taken_by_instance
e.seq IN (SELECT event FROM romancy.consumed WHERE instance = :instance::text)
  AND (:type::text IS NULL OR e.type = :type) AND e.seq < :before::bigint
-- Unmatched events are only those of users: most of the library's own are never waited for.
-- part: counts_as_unmatched
(NOT :unmatched::boolean OR substr(e.type, 1, length(:own::text)) <> :own)
-- name: events
SELECT {whole_event} FROM romancy.events e WHERE e.seq < :before::bigint AND {counts_as_unmatched} AND {last_events}
-- name: events_of_type
SELECT {whole_event} FROM romancy.events e WHERE e.type = :type::text AND e.seq < :before::bigint AND {last_events}
-- name: events_of_instance
SELECT {whole_event} FROM romancy.events e WHERE {taken_by_instance} AND {last_events}
-- By number, within the bound: the index on the type has another order.
-- part: fitting_event
(:source::text IS NULL OR e.source = :source) AND (:subject::text IS NULL OR e.subject = :subject)
  AND (:since::bigint IS NULL OR e.accepted_at >= :since) AND (:until::bigint IS NULL OR e.accepted_at <= :until)
  AND {event_has_text} AND {counts_as_unmatched}
-- name: shown_events
SELECT {shown_event} FROM romancy.events e WHERE e.seq < :before::bigint AND e.seq >= :reached::bigint
  AND (:type::text IS NULL OR e.type = :type) AND {fitting_event} AND {last_events}
-- name: shown_events_of_instance
SELECT {shown_event} FROM romancy.events e WHERE {taken_by_instance} AND {fitting_event} AND {last_events}
-- name: last_event_until
SELECT seq FROM romancy.events WHERE accepted_at <= :until::bigint ORDER BY accepted_at DESC, seq DESC LIMIT 1
-- name: shown_event
SELECT {shown_event} FROM romancy.events e WHERE e.source = :source::text AND e.id = :id::text
-- name: known_events
SELECT e.id FROM {listed} JOIN romancy.events e ON e.source = :source::text AND e.id = x.value
-- What was sent to an instance, newest first.
-- name: addressed_to
SELECT {event} FROM romancy.events e WHERE e.type = :type::text AND e.target = :instance::text
ORDER BY e.seq DESC LIMIT :limit::integer
-- name: events_bound
SELECT seq FROM romancy.events WHERE seq < :before::bigint ORDER BY seq DESC LIMIT 1 OFFSET :skip::integer
-- name: triggers_of_types
SELECT t.type, t.workflow FROM {listed} JOIN romancy.triggers t ON t.type = x.value ORDER BY t.type, t.workflow
-- name: cuts_of_types
SELECT c.type, c.upto FROM {listed} JOIN romancy.cuts c ON c.type = x.value

-- === the viewer's sessions ===

-- Make room for one more: delete sessions that have ended, and the oldest of too many.
-- name: delete_old_sessions
DELETE FROM romancy.sessions WHERE until <= :now::bigint
  OR key NOT IN (SELECT key FROM romancy.sessions ORDER BY until DESC, key LIMIT :most::integer)
-- name: insert_session
INSERT INTO romancy.sessions (key, proof, until) VALUES (:key::bytea, :proof::bytea, :until::bigint)
-- name: session
SELECT proof, until FROM romancy.sessions WHERE key = :key::bytea
-- name: delete_session
DELETE FROM romancy.sessions WHERE key = :key::bytea

-- When the run of an instance that is admitted begins: now, unless it has run before and its code saw another time.
-- part: begun
CASE WHEN EXISTS (SELECT 1 FROM romancy.history h WHERE h.instance = i.id) THEN i.began_at ELSE :at END

-- === schedules ===

-- The expression of the index: with the column alone, planners choose the index of all instances that have ended.
-- part: not_ended
i.finished_at + 0 IS NULL
-- part: schedule
s.name, s.workflow, s.input, s.input_kind, s.timeout, s.attributes, s.queue, s.queue_key, s.priority, s.cron, s.every, s.timezone, s.starts_at, s.ends_at,
  s.spread, s.catch_up, s.overlap, s.next_at, s.due_at, s.done_at, s.last_at, s.last_instance, s.paused, s.declared,
  s.started, s.skipped, s.error, s.stamp, s.former,
  (SELECT i.id FROM romancy.instances i WHERE i.schedule = s.name AND {not_ended} LIMIT 1),
  (SELECT i.finished_at FROM romancy.instances i WHERE i.schedule = s.name AND i.finished_at + 0 IS NOT NULL
    ORDER BY i.finished_at + 0 DESC LIMIT 1)
FROM romancy.schedules s
-- name: schedule
SELECT {schedule} WHERE s.name = :name::text
-- name: schedules
SELECT {schedule} ORDER BY s.name
-- name: declared_schedules
SELECT {schedule} WHERE s.declared ORDER BY s.name
-- name: due_schedules
SELECT {schedule} WHERE NOT s.paused AND s.due_at <= :now::bigint AND (s.due_at, s.name) > (:after_due::bigint, :after_name::text)
ORDER BY s.due_at, s.name LIMIT :limit::integer
-- name: next_schedule
SELECT min(due_at) FROM romancy.schedules WHERE NOT paused AND due_at > :after::bigint
-- name: open_of_schedule
SELECT i.id FROM romancy.instances i WHERE i.schedule = :name::text AND {not_ended} LIMIT :limit::integer
-- name: insert_schedule
INSERT INTO romancy.schedules (name, workflow, input, input_kind, timeout, attributes, queue, queue_key, priority, cron, every,
  timezone, starts_at, ends_at, spread, catch_up, overlap, next_at, due_at, paused, declared, started, skipped, stamp)
SELECT :name::text, :workflow::text, :input::bytea, :input_kind::smallint, :timeout::bigint, :attributes::text, :queue::text,
  :queue_key::text, :priority::integer, :cron::text, :every::bigint, :timezone::text, :starts_at::bigint, :ends_at::bigint, :spread::bigint, :catch_up::text, :overlap::text,
  :next_at::bigint, :due_at::bigint, false, :declared::boolean, 0, 0, :stamp::bytea
WHERE {outdated} IS NULL ON CONFLICT DO NOTHING RETURNING name
-- name: change_schedule
UPDATE romancy.schedules SET workflow = :workflow::text, input = :input::bytea, input_kind = :input_kind::smallint,
  timeout = :timeout::bigint, attributes = :attributes::text, queue = :queue::text, queue_key = :queue_key::text,
  priority = :priority::integer, cron = :cron::text, every = :every::bigint,
  timezone = :timezone::text, starts_at = :starts_at::bigint, ends_at = :ends_at::bigint, spread = :spread::bigint,
  catch_up = :catch_up::text, overlap = :overlap::text, next_at = :next_at::bigint, due_at = :due_at::bigint,
  former = :former::text, declared = :declared::boolean, error = NULL, stamp = :stamp::bytea
WHERE name = :name::text AND stamp = :seen::bytea AND {outdated} IS NULL RETURNING name
-- name: pause_schedule
UPDATE romancy.schedules SET paused = :paused::boolean, next_at = :next_at::bigint, due_at = :due_at::bigint,
  former = :former::text, stamp = :stamp::bytea WHERE name = :name::text AND stamp = :seen::bytea AND {outdated} IS NULL RETURNING name
-- What a worker could not do about a schedule.
-- name: blame_schedule
UPDATE romancy.schedules SET error = :error::text WHERE name = :name::text AND stamp = :seen::bytea AND {outdated} IS NULL
RETURNING name
-- name: delete_schedule
DELETE FROM romancy.schedules WHERE name = :name::text AND (:seen::bytea IS NULL OR stamp = :seen) AND {outdated} IS NULL
RETURNING name

-- === queues ===

-- An instance that holds a slot; one that waits for a slot.
-- part: has_slot
i.queue IS NOT NULL AND i.status <> 8 AND i.status < 10
-- part: is_queued
i.status = 8 AND i.queue = :queue::text
-- name: insert_queue
INSERT INTO romancy.queues (name, version, reserved) VALUES (:queue::text, 0, 0) ON CONFLICT DO NOTHING
-- The version is read with the count, in one snapshot: an admission that this does not see has another version.
-- name: queue
SELECT q.version, q.turn, q.reserved, (SELECT count(*) FROM (SELECT 1 FROM romancy.instances i {by_slot}
    WHERE i.queue = :queue::text AND {has_slot} LIMIT :most::integer) x),
  (SELECT min(i.queue_key) FROM romancy.instances i {by_queue} WHERE {is_queued}) IS NOT NULL
FROM romancy.queues q WHERE q.name = :queue
-- The same with the key whose turn is next, and its first instances: often enough to decide who is admitted.
-- name: queue_glance
SELECT s.version, s.turn, s.reserved, s.running, s.key, (SELECT count(*) FROM (SELECT 1 FROM romancy.instances i {by_slot}
    WHERE i.queue = :queue::text AND i.queue_key = s.key AND {has_slot} LIMIT :most_of_key::integer) x),
  coalesce((SELECT k.reserved FROM romancy.queue_keys k WHERE k.queue = :queue AND k.key = s.key), 0),
  NOT EXISTS (SELECT 1 FROM romancy.instances i {by_queue} WHERE {is_queued} AND i.queue_key > s.key)
    AND s.key = (SELECT min(i.queue_key) FROM romancy.instances i {by_queue} WHERE {is_queued}),
  (SELECT {ids_as_json} FROM (SELECT i.id FROM romancy.instances i {by_queue} WHERE {is_queued}
    AND i.queue_key = s.key ORDER BY i.priority DESC, i.created_at, i.id LIMIT :limit::integer) y)
FROM (SELECT q.version, q.turn, q.reserved, (SELECT count(*) FROM (SELECT 1 FROM romancy.instances i {by_slot}
      WHERE i.queue = :queue AND {has_slot} LIMIT :most::integer) x) AS running,
    coalesce((SELECT min(i.queue_key) FROM romancy.instances i {by_queue} WHERE {is_queued} AND i.queue_key > q.turn),
      (SELECT min(i.queue_key) FROM romancy.instances i {by_queue} WHERE {is_queued})) AS key
  FROM romancy.queues q WHERE q.name = :queue) s
-- Goes from one key to the next by the index: each can have many instances that wait.
-- name: waiting_keys
WITH RECURSIVE k (key, n) AS (SELECT CASE WHEN :after::text IS NULL
    THEN (SELECT min(i.queue_key) FROM romancy.instances i {by_queue} WHERE {is_queued})
    ELSE (SELECT min(i.queue_key) FROM romancy.instances i {by_queue} WHERE {is_queued} AND i.queue_key > :after) END, 1
  UNION ALL SELECT (SELECT min(i.queue_key) FROM romancy.instances i {by_queue} WHERE {is_queued} AND i.queue_key > k.key),
    k.n + 1 FROM k WHERE k.key IS NOT NULL AND k.n < :limit::integer)
SELECT k.key, (SELECT count(*) FROM (SELECT 1 FROM romancy.instances i {by_slot}
    WHERE i.queue = :queue AND i.queue_key = k.key AND {has_slot} LIMIT :most::integer) x),
  coalesce((SELECT q.reserved FROM romancy.queue_keys q WHERE q.queue = :queue AND q.key = k.key), 0)
FROM k WHERE k.key IS NOT NULL ORDER BY k.n
-- The first instances of each key, as a JSON array.
-- name: next_of_keys
SELECT x.value, (SELECT {ids_as_json} FROM (SELECT i.id FROM romancy.instances i {by_queue} WHERE {is_queued}
    AND i.queue_key = x.value ORDER BY i.priority DESC, i.created_at, i.id LIMIT :limit::integer) y)
FROM {listed} ORDER BY x.n
-- How many wait, how many hold a slot, and the rate, in one snapshot: an instance that is just admitted counts once.
-- name: queue_crowd
SELECT (SELECT count(*) FROM (SELECT 1 FROM romancy.instances i {by_queue} WHERE {is_queued} LIMIT :cap::bigint) x),
  (SELECT count(*) FROM (SELECT 1 FROM romancy.instances i {by_slot} WHERE i.queue = :queue AND {has_slot}
    LIMIT :most::integer) x),
  coalesce((SELECT q.reserved FROM romancy.queues q WHERE q.name = :queue), 0)
-- name: forget_queue_keys
DELETE FROM romancy.queue_keys WHERE reserved < :before::bigint
-- name: queue_names
SELECT name FROM romancy.queues WHERE name > :after::text ORDER BY name LIMIT :limit::integer
-- name: queue_counts
SELECT x.value, (SELECT count(*) FROM (SELECT 1 FROM romancy.instances i {by_slot}
    WHERE i.queue = x.value AND {has_slot} LIMIT :cap::integer) y),
  (SELECT count(*) FROM (SELECT 1 FROM romancy.instances i {by_queue}
    WHERE i.status = 8 AND i.queue = x.value LIMIT :cap) y),
  (SELECT min(y.created_at) FROM (SELECT i.created_at FROM romancy.instances i {by_queue}
    WHERE i.status = 8 AND i.queue = x.value LIMIT :cap) y)
FROM {listed} ORDER BY x.n
-- name: count_ahead
SELECT count(*) FROM (SELECT 1 FROM romancy.instances i {by_queue} WHERE {is_queued} AND i.queue_key = :key::text
  AND (i.priority > :priority::integer OR i.priority = :priority AND (i.created_at, i.id) < (:at::bigint, :id::text))
  LIMIT :cap::integer) x
-- name: queue_turn
SELECT turn, reserved FROM romancy.queues WHERE name = :queue::text
-- name: waiting_of_keys
SELECT x.value, (SELECT count(*) FROM (SELECT 1 FROM romancy.instances i {by_queue}
    WHERE {is_queued} AND i.queue_key = x.value LIMIT :cap::integer) y),
  (SELECT min(y.created_at) FROM (SELECT i.created_at FROM romancy.instances i {by_queue}
    WHERE {is_queued} AND i.queue_key = x.value LIMIT :cap) y)
FROM {listed} ORDER BY x.n
-- name: queues_of_instances
SELECT i.id, i.queue FROM {listed} JOIN romancy.instances i ON i.id = x.value WHERE i.queue IS NOT NULL
-- How much of the limits of a queue, and of one of its keys, is used up.
-- name: queue_use
SELECT coalesce((SELECT q.reserved FROM romancy.queues q WHERE q.name = :queue::text), 0),
  coalesce((SELECT k.reserved FROM romancy.queue_keys k WHERE k.queue = :queue AND k.key = :key::text), 0),
  (SELECT count(*) FROM (SELECT 1 FROM romancy.instances i {by_slot} WHERE i.queue = :queue AND {has_slot}
    LIMIT :cap::integer) x),
  (SELECT count(*) FROM (SELECT 1 FROM romancy.instances i {by_slot} WHERE i.queue = :queue AND i.queue_key = :key
    AND {has_slot} LIMIT :cap) x)
-- name: slot_holders
SELECT i.id FROM romancy.instances i {by_slot} WHERE i.queue = :queue::text AND {has_slot} LIMIT :limit::integer
-- name: slot_holders_of_key
SELECT i.id FROM romancy.instances i {by_slot} WHERE i.queue = :queue::text AND i.queue_key = :key::text AND {has_slot}
LIMIT :limit::integer
-- The queues in which instances wait, and how many of each workflow, of the first ones: goes from one queue to the next.
-- name: waiting_queues
WITH RECURSIVE q (name, n) AS (SELECT (SELECT min(i.queue) FROM romancy.instances i {by_queue} WHERE i.status = 8), 1
  UNION ALL SELECT (SELECT min(i.queue) FROM romancy.instances i {by_queue} WHERE i.status = 8 AND i.queue > q.name), q.n + 1
  FROM q WHERE q.name IS NOT NULL AND q.n < :limit::integer)
SELECT q.name FROM q WHERE q.name IS NOT NULL
-- name: waiting_workflows
SELECT x.workflow, count(*) FROM (SELECT i.workflow FROM romancy.instances i {by_queue} WHERE {is_queued}
  LIMIT :cap::integer) x GROUP BY x.workflow ORDER BY x.workflow

-- === who did what ===

-- Those from before its start are of an earlier instance with its id, which a library without this table removed.
-- name: acts_of
SELECT a.verb, a.who, a.at FROM romancy.acts a
WHERE a.instance = :instance::text AND a.at >= (SELECT i.created_at FROM romancy.instances i WHERE i.id = :instance)
ORDER BY a.id LIMIT :limit::integer

-- === sealed values ===

-- name: index_key
SELECT key FROM romancy.vault
-- name: folder
SELECT folder FROM romancy.vault
-- name: set_index_key
INSERT INTO romancy.vault (id, key) VALUES (1, :key::bytea)
-- name: change_index_key
UPDATE romancy.vault SET key = :key::bytea WHERE id = 1 AND key = :stored::bytea
