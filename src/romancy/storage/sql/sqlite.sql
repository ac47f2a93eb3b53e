-- Statements that only SQLite runs. It has one writer at a time, so a transaction can consist of several statements and
-- rely on what it reads. Values are bound in the order in which a statement first names them.
-- CROSS JOIN fixes the order of the tables: SQLite can't know that deliveries, requests and orphans are nearly empty.

-- === parts of common.sql ===

-- Differs: the syntax of a bytes literal.
-- part: no_bytes
x''
-- Differs: SQLite has no arrays; lists are passed as JSON.
-- part: listed
(SELECT value, key AS n FROM json_each(:listed)) x
-- Differs: SQLite has no arrays; lists are passed as JSON.
-- part: codes
json_each(:codes) x
-- Differs: SQLite must be told which index has the right order.
-- part: by_creation
INDEXED BY romancy.instances_created
-- Differs: SQLite must be told which index has the right order.
-- part: by_status
INDEXED BY romancy.instances_status
-- Differs: SQLite must be told which index has the right order.
-- part: by_parent
INDEXED BY romancy.instances_parent
-- Differs: SQLite must be told which index has the right order.
-- part: by_queue
INDEXED BY romancy.instances_queued
-- Differs: SQLite must be told which index has the right order.
-- part: by_slot
INDEXED BY romancy.instances_slots
-- Differs: SQLite has no arrays.
-- part: ids_as_json
json_group_array(y.id)
-- Differs: SQLite must be told which index to read, and in which order to join.
-- part: by_attribute
romancy.attributes t INDEXED BY romancy.attributes_value CROSS JOIN romancy.instances i ON i.id = t.instance
-- Differs: lists are passed as JSON.
-- part: has_attributes
(:pairs IS NULL OR :wanted = (SELECT count(*) FROM romancy.attributes a WHERE a.instance = i.id
    AND a.name || '=' || a.value IN (SELECT value FROM json_each(:pairs))))
  AND (:absent IS NULL OR 0 = (SELECT count(*) FROM romancy.attributes a WHERE a.instance = i.id
    AND a.name IN (SELECT value FROM json_each(:absent))))
-- Differs: how bytes are written.
-- The first byte of a sealed value, in which nothing is looked for. No text begins with it.
-- part: sealed
x'00'
-- Differs: how to search in bytes.
-- Letters of ASCII fit in either case. The text that is looked for is in lower case.
-- part: has_text
(:text IS NULL OR instr(CAST(lower(i.id) AS BLOB), :text)
  OR (substr(i.input, 1, 1) <> {sealed} AND instr(CAST(lower(CAST(i.input AS TEXT)) AS BLOB), :text))
  OR (substr(i.error, 1, 1) <> {sealed} AND instr(CAST(lower(CAST(i.error AS TEXT)) AS BLOB), :text))
  OR (substr(i.output, 1, 1) <> {sealed} AND instr(CAST(lower(CAST(i.output AS TEXT)) AS BLOB), :text)))
-- Differs: how to search in bytes.
-- part: event_has_text
(:text IS NULL OR instr(CAST(lower(e.type || ' ' || e.source || ' ' || e.id || ' ' || coalesce(e.subject, '')) AS BLOB), :text)
  OR (substr(e.data, 1, 1) <> {sealed} AND instr(CAST(lower(CAST(e.data AS TEXT)) AS BLOB), :text)))

-- === one batch ===

-- name: fence
SELECT 1 FROM romancy.workers WHERE id = :worker
-- name: horizon
SELECT coalesce(max(seq), 0) FROM romancy.events

-- name: insert_instance
INSERT INTO romancy.instances
  (id, workflow, status, owner, token, birth, since, input, input_kind, deadline, created_at, updated_at)
VALUES (:id, :workflow, 1, :owner, :token, :token, :since, :input, :kind, :deadline, :at, :at)
ON CONFLICT (id) DO NOTHING
-- Only the owner of an unfinished parent can start a child: a worker that was paused must not start it later.
-- name: insert_child
INSERT INTO romancy.instances
  (id, workflow, status, owner, token, birth, since, input, input_kind, deadline, created_at, updated_at, parent, parent_op,
  is_free)
SELECT :id, :workflow, 1, :owner, :token, :token, :since, :input, :kind, :deadline, :at, :at, :parent, :parent_op,
  :is_free
WHERE EXISTS (SELECT 1 FROM romancy.instances WHERE id = :parent AND owner = :worker AND status < 9)
ON CONFLICT (id) DO NOTHING
-- name: insert_last_child
INSERT INTO romancy.instances
  (id, workflow, status, owner, token, birth, since, input, input_kind, deadline, created_at, updated_at, parent, parent_op,
  is_free)
VALUES (:id, :workflow, 1, :owner, :token, :token, :since, :input, :kind, :deadline, :at, :at, :parent, :parent_op,
  :is_free)
ON CONFLICT (id) DO NOTHING
-- name: existing_child
SELECT workflow, birth, parent = :parent AND parent_op = :parent_op FROM romancy.instances WHERE id = :id
-- name: existing_instance
SELECT workflow, input, birth FROM romancy.instances WHERE id = :id

-- name: touch_instance
UPDATE romancy.instances SET version = version + 1, token = :token, updated_at = :at
WHERE id = :id AND owner = :worker AND version = :version AND status < 9
-- name: advance_instance
UPDATE romancy.instances SET version = version + 1, token = :token, status = :status,
  owner = CASE WHEN :free THEN NULL ELSE owner END, updated_at = :at, finished_at = :finished_at, output = :output,
  error = :error, description = coalesce(:description, description)
WHERE id = :id AND owner = :worker AND version = :version AND status < 9
-- The instance goes on with a new run. The events it took, and what is addressed to it, stay as they are.
-- name: continue_instance
UPDATE romancy.instances SET version = version + 1, token = :token, status = 1, owner = CASE WHEN :free THEN NULL ELSE owner END,
  updated_at = :at, description = coalesce(:description, description), generation = generation + 1, base = :base,
  began_at = :at, limited_from = NULL, builds = NULL, workflow = :workflow, input = :input, input_kind = :kind,
  deadline = coalesce(:deadline, deadline)
WHERE id = :id AND owner = :worker AND version = :version AND status < 9
-- name: set_builds
UPDATE romancy.instances SET builds = :builds WHERE id = :id
-- name: forget_entries
DELETE FROM romancy.history WHERE instance = :instance AND n <= :forget
-- name: instance_token
SELECT token FROM romancy.instances WHERE id = :id
-- name: insert_entry
INSERT INTO romancy.history (instance, n, kind, op, at, input, payload, event)
VALUES (:instance, :n, :kind, :op, :at, :input, :payload, :event)
-- name: append_entry
INSERT INTO romancy.history (instance, n, kind, op, at, input, payload, event)
SELECT :instance, :n, :kind, :op, :at, :input, :payload, :event
WHERE EXISTS (SELECT 1 FROM romancy.instances WHERE id = :instance AND owner = :worker AND version = :version AND status < 9)
  AND EXISTS (SELECT 1 FROM romancy.workers WHERE id = :worker)
ON CONFLICT DO NOTHING
-- name: may_append
SELECT 1 FROM romancy.instances WHERE id = :id AND owner = :worker AND version = :version AND status < 9
-- name: entries_between
SELECT n, kind, op, at, input, payload, event FROM romancy.history
WHERE instance = :instance AND n BETWEEN :first AND :last ORDER BY n
-- name: insert_wait
INSERT INTO romancy.waits (instance, op, due_at, since, model, spec, location, created_at)
VALUES (:instance, :op, :due, :since, :model, :spec, :location, :at) ON CONFLICT (instance, op) DO NOTHING
-- name: insert_wait_key
INSERT INTO romancy.wait_keys (type, shape, key, instance, op, follows, alike)
VALUES (:type, :shape, :key, :instance, :op, :follows, :alike) ON CONFLICT DO NOTHING
-- name: delete_wait
DELETE FROM romancy.waits WHERE instance = :instance AND op = :op
-- name: delete_keys_of_wait
DELETE FROM romancy.wait_keys WHERE instance = :instance AND op = :op
-- name: insert_consumed
INSERT INTO romancy.consumed (instance, event, op) VALUES (:instance, :event, :op)
-- name: set_mark
INSERT INTO romancy.marks (instance, type, shape, key, model, seq) VALUES (:instance, :type, :shape, :key, :model, :seq)
ON CONFLICT (instance, type, shape, key, model) DO UPDATE SET seq = excluded.seq
-- name: insert_misfit
INSERT INTO romancy.misfits (instance, model, event, op, error) VALUES (:instance, :model, :event, :op, :error)
ON CONFLICT DO NOTHING
-- name: delete_delivery
DELETE FROM romancy.deliveries WHERE instance = :instance AND event = :event
-- name: set_attempt
INSERT INTO romancy.attempts (instance, op, n, first_at, next_due, error, progress, crashes, started)
VALUES (:instance, :op, :n, :first_at, :due, :error, :progress, :crashes, :started)
ON CONFLICT (instance, op) DO UPDATE SET n = excluded.n, next_due = excluded.next_due, error = excluded.error,
  progress = excluded.progress, crashes = excluded.crashes, started = excluded.started, suspected_at = NULL
-- The same for a suspect, with its evidence.
-- name: set_suspect
INSERT INTO romancy.attempts (instance, op, n, first_at, next_due, error, progress, crashes, started,
  suspected_at, tried, tried_alone, alone, run, is_alone, culprit)
VALUES (:instance, :op, :n, :first_at, :due, :error, :progress, :crashes, :started,
  :since, :tried, :tried_alone, :alone, :run, :is_alone, :culprit)
ON CONFLICT (instance, op) DO UPDATE SET n = excluded.n, next_due = excluded.next_due, error = excluded.error,
  progress = excluded.progress, crashes = excluded.crashes, started = excluded.started,
  suspected_at = excluded.suspected_at, tried = excluded.tried, tried_alone = excluded.tried_alone,
  alone = excluded.alone, run = excluded.run, is_alone = excluded.is_alone, culprit = excluded.culprit
-- name: insert_trial
INSERT INTO romancy.trials (culprit, at, since, tried_alone, alone) VALUES (:culprit, :at, :since, :tried_alone, :alone)
-- name: delete_attempt
DELETE FROM romancy.attempts WHERE instance = :instance AND op = :op
-- name: delete_request
DELETE FROM romancy.requests WHERE id = :id
-- name: set_view
INSERT INTO romancy.views (instance, value, at) VALUES (:instance, :value, :at)
ON CONFLICT (instance) DO UPDATE SET value = excluded.value, at = excluded.at WHERE value <> excluded.value
-- name: set_attribute
INSERT INTO romancy.attributes (instance, name, value, created_at) VALUES (:instance, :name, :value, :created_at)
ON CONFLICT (instance, name) DO UPDATE SET value = excluded.value WHERE value <> excluded.value
-- name: remove_attribute
DELETE FROM romancy.attributes WHERE instance = :instance AND name = :name

-- The rows of an instance, for one that ended, was cancelled or is pruned.
-- name: delete_history
DELETE FROM romancy.history WHERE instance = :instance
-- name: delete_consumed
DELETE FROM romancy.consumed WHERE instance = :instance
-- name: delete_marks
DELETE FROM romancy.marks WHERE instance = :instance
-- name: delete_misfits
DELETE FROM romancy.misfits WHERE instance = :instance
-- name: delete_attempts
DELETE FROM romancy.attempts WHERE instance = :instance
-- name: delete_waits
DELETE FROM romancy.waits WHERE instance = :instance
-- name: delete_wait_keys
DELETE FROM romancy.wait_keys WHERE instance = :instance
-- name: delete_deliveries
DELETE FROM romancy.deliveries WHERE instance = :instance
-- name: delete_requests
DELETE FROM romancy.requests WHERE instance = :instance
-- name: delete_view
DELETE FROM romancy.views WHERE instance = :instance
-- name: delete_attributes
DELETE FROM romancy.attributes WHERE instance = :instance
-- name: delete_acts
DELETE FROM romancy.acts WHERE instance = :instance
-- name: set_headers
INSERT INTO romancy.headers (instance, headers) VALUES (:instance, :headers)
ON CONFLICT (instance) DO UPDATE SET headers = excluded.headers
-- name: copy_headers
INSERT INTO romancy.headers (instance, headers) SELECT :id, headers FROM romancy.headers WHERE instance = :origin
ON CONFLICT (instance) DO UPDATE SET headers = excluded.headers
-- name: delete_headers
DELETE FROM romancy.headers WHERE instance = :instance
-- Never from before its start: the clock may be behind that of another process, or of a queue.
-- name: insert_act
INSERT INTO romancy.acts (instance, at, verb, who)
SELECT id, max(created_at, :at), :verb, :who FROM romancy.instances WHERE id = :instance
-- The id of a parent that was removed may be used again: its children are not those of the next one.
-- name: forget_parent
UPDATE romancy.instances SET parent_op = NULL WHERE parent = :instance
-- name: delete_instance
DELETE FROM romancy.instances WHERE id = :instance

-- === events ===

-- name: insert_event
INSERT INTO romancy.events (source, id, type, subject, time, target, attrs, data, token, accepted_at, expires_at, origin)
VALUES (:source, :id, :type, :subject, :time, :target, :attrs, :data, :token, :accepted_at, :expires_at, :origin)
ON CONFLICT (source, id) DO NOTHING
-- name: existing_event
SELECT seq, token, type, subject, target, attrs, data FROM romancy.events WHERE source = :source AND id = :id
-- Differs: one at a time here, several in one statement there.
-- name: set_differed
UPDATE romancy.events SET differed_at = :at WHERE seq = :seq AND differed_at IS NULL
-- name: shapes
SELECT id, fields FROM romancy.shapes WHERE type = :type
-- name: log_of_type
SELECT seq, subject, source, data, attrs FROM romancy.events WHERE type = :type
-- name: insert_event_key
INSERT INTO romancy.event_keys (shape, key, seq) VALUES (:shape, :key, :seq) ON CONFLICT DO NOTHING
-- The last columns: the owner, or '' if there is none, and the workflow of an instance that can be offered an event at
-- once, because no other event is on its way to it.
-- part: waits_alike
SELECT k.instance, k.op, w.model, w.spec, w.since IS NULL, k.alike,
  CASE WHEN i.status < 9 AND NOT EXISTS (SELECT 1 FROM romancy.deliveries d WHERE d.instance = k.instance)
    THEN coalesce(i.owner, '') END, i.workflow
FROM romancy.wait_keys k CROSS JOIN romancy.waits w ON w.instance = k.instance AND w.op = k.op
  CROSS JOIN romancy.instances i ON i.id = k.instance
WHERE k.type = :type AND k.shape = :shape AND k.key = :key
-- Waits that are not followers come first. One follower is enough: the event that it takes leads to the next.
-- name: waits_of_key
{waits_alike} ORDER BY k.follows, k.instance, k.alike, k.op
-- Goes from the followers of one kind to those of the next by the index: in the same instance, then in others. A single
-- statement with (instance, alike) > (?, ?) would make SQLite read all followers of the instance.
-- name: next_followers
{waits_alike} AND k.follows = 1 AND k.instance = :instance AND k.alike > :alike ORDER BY k.alike, k.op LIMIT 1
-- name: followers_elsewhere
{waits_alike} AND k.follows = 1 AND k.instance > :instance ORDER BY k.instance, k.alike, k.op LIMIT 1
-- For an event that is addressed to one instance.
-- name: waits_of_key_and_target
{waits_alike} AND k.follows = 0 AND k.instance = :instance AND k.alike = x'' ORDER BY k.op
-- For events with so many values that looking up each of them would take longer.
-- name: waits_of_shape
SELECT k.instance, min(k.op), w.model, w.spec FROM romancy.wait_keys k JOIN romancy.waits w ON w.instance = k.instance AND w.op = k.op
WHERE k.type = :type AND k.shape = :shape AND (:target IS NULL OR k.instance = :target)
GROUP BY k.instance, w.model, w.spec, CASE WHEN w.since IS NULL THEN '' ELSE k.op END
-- name: insert_delivery
INSERT INTO romancy.deliveries (instance, event) VALUES (:instance, :event) ON CONFLICT DO NOTHING
-- name: triggers_of_type
SELECT workflow, timeout FROM romancy.triggers WHERE type = :type

-- name: wait_to_look
SELECT w.op, coalesce(w.since, i.since), w.since IS NULL OR w.since >= i.since, w.model, w.spec, i.owner, w.since IS NULL
FROM romancy.waits w JOIN romancy.instances i ON i.id = w.instance WHERE w.instance = :instance AND w.op = :op AND i.status < 9
-- name: waits_to_look
SELECT min(w.op), coalesce(w.since, i.since), w.since IS NULL OR w.since >= i.since, w.model, w.spec, i.owner,
  w.since IS NULL
FROM romancy.waits w JOIN romancy.instances i ON i.id = w.instance WHERE w.instance = :instance AND w.spec <> x'' AND i.status < 9
GROUP BY w.model, w.spec, CASE WHEN w.since IS NULL THEN '' ELSE w.op END
-- name: keys_of_wait
SELECT k.type, k.shape, k.key, m.seq FROM romancy.wait_keys k LEFT JOIN romancy.marks m
  ON m.instance = k.instance AND m.type = k.type AND m.shape = k.shape AND m.key = k.key AND m.model = :model
WHERE k.instance = :instance AND k.op = :op
-- Whether an instance can still take an event e with a wait, apart from type, filter, target and place.
-- Differs: the beginning of a wait is a number here, a snapshot there.
-- part: free
(e.expires_at IS NULL OR e.expires_at > :at)
  AND NOT EXISTS (SELECT 1 FROM romancy.consumed c WHERE c.instance = :instance AND c.event = e.seq)
  AND NOT EXISTS (SELECT 1 FROM romancy.misfits f WHERE f.instance = :instance AND f.model = :model AND f.event = e.seq)
-- name: look_unfiltered
SELECT e.seq FROM romancy.events e WHERE e.type = :type AND e.target IS NULL AND e.seq > :after AND {free} ORDER BY e.seq LIMIT 1
-- name: look_targeted
SELECT e.seq FROM romancy.events e WHERE e.type = :type AND e.target = :instance AND e.seq > :after AND {free}
ORDER BY e.seq LIMIT 1
-- name: look_filtered
SELECT e.seq FROM romancy.event_keys k JOIN romancy.events e ON e.seq = k.seq
WHERE k.shape = :shape AND k.key = :key AND k.seq > :after AND (e.target IS NULL OR e.target = :instance) AND {free}
ORDER BY k.seq LIMIT 1
-- Differs: read row by row, so no paging is needed.
-- name: look_scan
SELECT e.seq, e.subject, e.source, e.data, e.attrs FROM romancy.events e
WHERE e.type = :type AND (e.target IS NULL OR e.target = :instance) AND e.seq > :after AND {free} ORDER BY e.seq
-- name: found_event
SELECT {event} FROM romancy.events e WHERE e.seq = :seq
-- The last event before those accepted since a given time. Processes store at the same time, so an event accepted a
-- little earlier may be stored later; it counts, too. The limit is needed because the time can be long ago.
-- name: last_before
SELECT coalesce(min(seq) - 1, (SELECT coalesce(max(seq), 0) FROM romancy.events))
FROM (SELECT seq FROM romancy.events WHERE accepted_at >= :at ORDER BY accepted_at LIMIT 1000)

-- === requests ===

-- name: insert_request
INSERT INTO romancy.requests (instance, kind, payload, at) VALUES (:instance, :kind, :payload, :at)
-- name: insert_letter
INSERT INTO romancy.requests (instance, kind, payload, at, op)
SELECT :instance, :kind, :payload, :at, :op FROM romancy.instances WHERE id = :instance AND status < 10
-- Attempts that rest because their worker died are not to begin earlier.
-- name: waits_for_attempt
SELECT 1 FROM romancy.attempts a CROSS JOIN romancy.instances i ON i.id = a.instance
WHERE a.instance = :instance AND {can_hasten} AND a.next_due > :at AND i.status < 9 LIMIT 1
-- name: owner_of
SELECT owner FROM romancy.instances WHERE id = :id
-- name: parent_of
SELECT parent, parent_op FROM romancy.instances WHERE id = :id
-- The children that an instance leaves, if it is cancelled at once: free ones go on.
-- name: awaited_children
SELECT id FROM romancy.instances INDEXED BY romancy.instances_parent
WHERE parent = :parent AND parent_op IS NOT NULL AND status < 10 AND is_free IS NULL
-- name: open_child
SELECT 1 FROM romancy.instances WHERE id = :id AND parent = :parent AND status < 10
-- name: request_target
SELECT status, owner FROM romancy.instances WHERE id = :id
-- A blocked instance has no code that could clean up; one that never ran has nothing to clean up.
-- The error keeps what is not undone, which is the last member of the error of an instance blocked by its undos.
-- Differs: one at a time, and further statements delete its rows.
-- name: cancel_at_once
UPDATE romancy.instances SET status = 12, owner = NULL, version = version + 1, finished_at = :at, updated_at = :at,
  error = CASE WHEN instr(error, CAST('"not_undone": [' AS BLOB)) > 0
    THEN CAST(substr(:error, 1, length(:error) - 1) || ', '
      || substr(error, instr(error, CAST('"not_undone": [' AS BLOB))) AS BLOB)
    ELSE :error END, builds = NULL WHERE id = :id AND (status = 9 AND :blocked OR status = 1 AND owner IS NULL AND version = 0
    OR status = 8 AND NOT EXISTS (SELECT 1 FROM romancy.history h WHERE h.instance = :id))
-- Differs: further statements delete the evidence against it.
-- name: resume_blocked
UPDATE romancy.instances SET status = 1, owner = NULL, version = version + 1, error = NULL, builds = NULL
WHERE id = :id AND status = 9
-- name: forget_suspected_body
DELETE FROM romancy.attempts WHERE instance = :instance AND op = ''
-- name: forget_suspected_calls
UPDATE romancy.attempts SET crashes = 0, started = 0, next_due = NULL, suspected_at = NULL
WHERE instance = :instance AND (crashes > 0 OR suspected_at IS NOT NULL)

-- Reopens an instance that failed or was cancelled, unless it has undone its steps. The time limit of its run begins again.
-- One at a time; further statements replace its requests.
-- name: reopenable
SELECT i.error FROM romancy.instances i WHERE i.id = :id AND i.status IN (11, 12) AND NOT EXISTS (SELECT 1 FROM romancy.history h
  WHERE h.instance = i.id AND h.n > i.base AND h.op >= 'undo ' AND h.op < 'undo!')
-- name: reopen_instance
UPDATE romancy.instances SET status = CASE WHEN queue IS NULL THEN 1 ELSE 8 END, owner = NULL, version = version + 1, finished_at = NULL, output = NULL, error = NULL,
  updated_at = :at, deadline = :at + deadline - coalesce(limited_from, began_at, created_at), limited_from = :at WHERE id = :id
-- A copy of an instance. One that has undone its steps can only begin again. It has run: what it does may have to be undone
-- if it is cancelled.
-- name: insert_fork
INSERT INTO romancy.instances (id, workflow, status, version, token, birth, since, input, input_kind, deadline, created_at,
  updated_at, generation, base, began_at, limited_from, seed, schedule, scheduled_at, queue, queue_key, priority)
SELECT :id, o.workflow, CASE WHEN o.queue IS NULL THEN 1 ELSE 8 END, 1, :token, :token, o.since, coalesce(:input, o.input), o.input_kind,
  :at + o.deadline - coalesce(o.limited_from, o.began_at, o.created_at), :at, :at, CASE WHEN :cut = 0 THEN 0 ELSE o.generation END,
  CASE WHEN :cut = 0 THEN 0 ELSE o.base END, CASE WHEN :cut > 0 THEN coalesce(o.began_at, o.created_at) END,
  :at, :seed, o.schedule, o.scheduled_at, o.queue, o.queue_key, o.priority FROM romancy.instances o
  WHERE o.id = :origin AND o.generation = :generation
  AND (:cut = 0 OR NOT EXISTS (SELECT 1 FROM romancy.history h
    WHERE h.instance = o.id AND h.n > o.base AND h.op >= 'undo ' AND h.op < 'undo!')) ON CONFLICT (id) DO NOTHING
-- name: copy_entry
INSERT INTO romancy.history (instance, n, kind, op, at, input, payload, event)
SELECT :id, n, kind, op, at, input, payload, event FROM romancy.history WHERE instance = :origin AND n = :n
-- It has taken what its original took before the cut, also in earlier runs.
-- name: copy_consumed
INSERT INTO romancy.consumed (instance, event, op) SELECT :id, event, op FROM romancy.consumed WHERE instance = :origin AND event NOT IN
  (SELECT h.event FROM romancy.history h, romancy.instances o
   WHERE o.id = :origin AND h.instance = :origin AND h.n > max(o.base, :cut) AND h.event IS NOT NULL)
-- A child that its parent waits for again, unless its end is already under way.
-- name: child_to_rejoin
SELECT c.status, c.output, c.error FROM romancy.instances c WHERE c.id = :id AND c.parent = :parent AND c.parent_op = :op
  AND NOT EXISTS (SELECT 1 FROM romancy.requests r WHERE r.instance = :parent AND r.op = :op)
-- name: delete_late_ends
DELETE FROM romancy.requests WHERE instance = :parent AND op = :op AND kind IN (4, 5)
-- Another child takes its place. The new version makes a worker that runs it read that.
-- name: replace_child
UPDATE romancy.instances SET parent_op = NULL, version = version + 1 WHERE id = :id AND parent = :parent
-- name: delete_requests_of_kind
DELETE FROM romancy.requests WHERE instance = :instance AND kind = :kind
-- name: give_back
DELETE FROM romancy.consumed WHERE instance = :instance AND event = :event

-- === workers and claims ===

-- Differs: uses the clock of the machine here, the clock of the server there.
-- name: insert_worker
INSERT INTO romancy.workers (id, host, until, started_at, about, load) VALUES (:worker, :host, :until, :now, :about, 0)
-- Differs: uses the clock of the machine here, the clock of the server there.
-- name: renew_worker
UPDATE romancy.workers SET until = :until, load = :load, about = coalesce(:about, about) WHERE id = :worker
-- name: delete_worker
DELETE FROM romancy.workers WHERE id = :worker
-- name: workers
SELECT id, until FROM romancy.workers
-- name: leaving_worker
SELECT leaving, started_at, until FROM romancy.workers WHERE id = :worker
-- The last sign of life of a dead worker. A worker that was running when it last renewed its lease sees its death at
-- once; others know only what it wrote. The record that a suspect started, or is still running, is such a sign.
-- name: last_sign
SELECT max(:renewed, coalesce((SELECT max(i.updated_at) FROM romancy.instances i WHERE i.owner = :worker AND {has_work}), 0),
  coalesce((SELECT CASE WHEN started_at <= :renewed THEN :now END FROM romancy.workers WHERE id = :by), 0))
-- name: insert_death
INSERT INTO romancy.deaths (worker, since, at) VALUES (:worker, :since, :at) ON CONFLICT DO NOTHING
-- name: insert_orphan
INSERT INTO romancy.orphans (id, at, clean)
SELECT :worker, :at, :clean WHERE EXISTS (SELECT 1 FROM romancy.instances WHERE owner = :worker AND status < 9)
-- name: clean_orphans
SELECT id FROM romancy.orphans WHERE clean = 1
-- name: triggers
SELECT type, workflow FROM romancy.triggers
-- name: delete_triggers
DELETE FROM romancy.triggers WHERE workflow = :workflow
-- name: insert_trigger
INSERT INTO romancy.triggers (type, workflow, timeout) VALUES (:type, :workflow, :timeout) ON CONFLICT DO NOTHING

-- Differs: one at a time, from those found before.
-- name: claim
UPDATE romancy.instances SET owner = :worker, version = version + 1 WHERE id = :id AND status < 8
  AND (owner IS NULL OR owner IN (SELECT id FROM romancy.orphans))
-- For an instance that is offered an event at once. What a dead worker left is claimed by `claim`: it may be to blame
-- for the death. Requests are read before the instance is.
-- name: claim_receiver
UPDATE romancy.instances SET owner = :worker, version = version + 1 WHERE id = :id AND status < 8
  AND (owner IS NULL OR owner IN (SELECT id FROM romancy.orphans WHERE clean = 1))
  AND NOT EXISTS (SELECT 1 FROM romancy.requests r WHERE r.instance = :id)
-- Differs: lists are passed as JSON.
-- part: claimable
i.status < 8 AND (i.owner IS NULL OR i.owner IN (SELECT id FROM romancy.orphans))
  AND i.workflow IN (SELECT value FROM json_each(:workflows))
-- name: free_running
SELECT i.id, i.owner FROM romancy.instances i WHERE i.owner IS NULL AND {has_work} AND i.workflow = :workflow LIMIT :limit
-- name: orphaned_running
SELECT i.id, i.owner FROM romancy.orphans o CROSS JOIN romancy.instances i ON i.owner = o.id AND {has_work}
WHERE i.workflow IN (SELECT value FROM json_each(:workflows)) LIMIT :limit
-- name: free_with_mail
SELECT DISTINCT i.id, i.owner FROM romancy.deliveries d CROSS JOIN romancy.instances i ON i.id = d.instance WHERE {claimable} LIMIT :limit
-- name: free_with_request
SELECT DISTINCT i.id, i.owner FROM romancy.requests r CROSS JOIN romancy.instances i ON i.id = r.instance WHERE {claimable} LIMIT :limit
-- name: free_due
SELECT DISTINCT i.id, i.owner FROM romancy.waits w CROSS JOIN romancy.instances i ON i.id = w.instance
WHERE w.due_at <= :due AND {claimable} ORDER BY w.due_at LIMIT :limit

-- Instances that are blocked because some builds of their code did not follow their history, in order.
-- Differs: one workflow at a time.
-- name: unfit
SELECT workflow, id, builds FROM romancy.instances WHERE status = 9 AND builds IS NOT NULL AND workflow = :workflow AND id > :after
ORDER BY id LIMIT :limit
-- Differs: one at a time.
-- name: claim_unfit
UPDATE romancy.instances SET status = 1, owner = :worker, version = version + 1, error = NULL
WHERE id = :id AND status = 9 AND builds = :builds

-- Queues.
-- name: set_place
UPDATE romancy.instances SET status = 8, owner = NULL, queue = :queue, queue_key = :key, priority = :priority WHERE id = :id
-- name: turn_queue
UPDATE romancy.queues SET version = version + 1, turn = :turn, reserved = :reserved WHERE name = :queue AND version = :version
-- name: reserve_key
INSERT INTO romancy.queue_keys (queue, key, reserved) VALUES (:queue, :key, :reserved)
ON CONFLICT (queue, key) DO UPDATE SET reserved = excluded.reserved
-- Differs: one at a time. The time limit runs from now on.
-- name: admit
UPDATE romancy.instances AS i SET status = 1, version = version + 1, updated_at = :at, limited_from = :at,
  deadline = :at + deadline - coalesce(limited_from, began_at, created_at), began_at = {begun}
WHERE id = :id AND status = 8 RETURNING id, workflow

-- Balancing: how many each worker owns, which can leave, which are free. Two statuses mean that an instance only waits.
-- Differs: a separate statement counts the free ones.
-- name: shares
SELECT w.id, (SELECT count(*) FROM (SELECT 1 FROM romancy.instances i WHERE i.owner = w.id AND i.status < 9 LIMIT :most))
FROM romancy.workers w WHERE w.until >= :now AND (SELECT count(*) FROM romancy.workers) > 1
-- name: free_waiting
SELECT i.id FROM romancy.instances i WHERE i.owner IS NULL AND {only_waits} AND i.workflow = :workflow LIMIT :limit
-- Differs: looks are part of a commit here, so none can be due.
-- name: idle_of_worker
SELECT i.id, i.version, i.status FROM romancy.instances i WHERE i.owner = :worker AND {only_waits}
  AND NOT EXISTS (SELECT 1 FROM romancy.waits w WHERE w.instance = i.id AND w.due_at <= :due)
  AND NOT EXISTS (SELECT 1 FROM romancy.deliveries d WHERE d.instance = i.id)
  AND NOT EXISTS (SELECT 1 FROM romancy.requests r WHERE r.instance = i.id) LIMIT :limit

-- === pruning ===

-- Differs: events are dispatched when they are stored here, so none is left undispatched.
-- name: forget_expired_data
UPDATE romancy.events SET data = NULL WHERE expires_at IS NOT NULL AND expires_at < :at AND data IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM romancy.deliveries d WHERE d.event = seq)
-- name: delete_event_keys
DELETE FROM romancy.event_keys WHERE seq = :seq
-- name: delete_receivers
DELETE FROM romancy.consumed WHERE event = :seq
-- name: delete_event
DELETE FROM romancy.events WHERE seq = :seq

-- === reads ===

-- Deliveries have no payload.
-- Differs: CROSS JOIN; PostgreSQL needs LATERAL to look up by id.
-- name: mail
SELECT * FROM (SELECT d.instance, d.event, NULL AS kind, NULL AS payload, NULL AS op
  FROM romancy.deliveries d CROSS JOIN romancy.instances i ON i.id = d.instance
  WHERE (d.event, d.instance) > (:event, :instance) AND i.owner = :worker AND i.status < 9
  ORDER BY d.event, d.instance LIMIT :limit)
UNION ALL SELECT * FROM (SELECT r.instance, r.id, r.kind, r.payload, r.op
  FROM romancy.requests r CROSS JOIN romancy.instances i ON i.id = r.instance
  WHERE r.id > :request AND i.owner = :worker AND i.status < 9 ORDER BY r.id LIMIT :limit)
-- Differs: CROSS JOIN; PostgreSQL needs LATERAL to look up by id.
-- name: due_waits
SELECT w.due_at, w.instance, w.op FROM romancy.waits w INDEXED BY romancy.waits_due CROSS JOIN romancy.instances i ON i.id = w.instance
WHERE w.due_at <= :before AND i.owner = :worker AND i.status < 9 ORDER BY w.due_at LIMIT :limit
-- Differs: CROSS JOIN; PostgreSQL needs LATERAL to look up by id.
-- name: due_retries
SELECT a.next_due, a.instance, a.op FROM romancy.attempts a INDEXED BY romancy.attempts_due CROSS JOIN romancy.instances i ON i.id = a.instance
WHERE a.next_due <= :before AND i.owner = :worker AND i.status < 9 ORDER BY a.next_due LIMIT :limit
-- Instances with a retry need not be in memory before it falls due.
-- Differs: looks are part of a commit here, so none can be due.
-- name: restless_of_worker
SELECT i.id FROM romancy.instances i WHERE i.owner = :worker AND {has_work}
  AND NOT EXISTS (SELECT 1 FROM romancy.attempts a WHERE a.instance = i.id AND a.next_due IS NOT NULL)
-- === loading instances ===

-- Rows come in the order of the list, and of the keys of each table.
-- part: each_to_load
json_each(:ids) x CROSS JOIN
-- name: instances_to_load
SELECT {instance}, coalesce((SELECT max(n) FROM romancy.history WHERE instance = i.id) - i.base, 0),
  (SELECT headers FROM romancy.headers WHERE instance = i.id)
FROM {each_to_load} romancy.instances i ON i.id = x.value
-- name: entries_to_load
SELECT h.instance, h.n, h.kind, h.op, h.at, h.input, h.payload, h.event
FROM {each_to_load} romancy.instances i ON i.id = x.value CROSS JOIN romancy.history h ON h.instance = i.id AND h.n > i.base
-- name: waits_to_load
SELECT w.instance, w.op, w.due_at, w.spec, w.model, w.since IS NOT NULL FROM {each_to_load} romancy.waits w ON w.instance = x.value
-- name: attempts_to_load
SELECT a.instance, a.op, a.n, a.first_at, a.next_due, a.error, a.progress, a.crashes, a.started, a.culprit,
  a.suspected_at, a.tried, a.tried_alone, a.alone, a.run, a.is_alone
FROM {each_to_load} romancy.attempts a ON a.instance = x.value
-- name: requests_to_load
SELECT r.instance, r.id, r.kind, r.payload, r.op FROM {each_to_load} romancy.requests r ON r.instance = x.value
-- name: deliveries_to_load
SELECT d.instance, d.event FROM {each_to_load} romancy.deliveries d ON d.instance = x.value
-- Differs: SQLite has no LATERAL to limit the rows of each.
-- name: receivers
SELECT c.event, c.instance, c.op FROM json_each(:seqs) x CROSS JOIN romancy.consumed c ON c.event = x.value
WHERE c.instance IN (SELECT o.instance FROM romancy.consumed o WHERE o.event = x.value ORDER BY o.instance LIMIT 100)
-- Differs: SQLite has no LATERAL to limit the rows of each.
-- name: few_waits
SELECT {wait} FROM {listed} CROSS JOIN romancy.waits w ON w.instance = x.value
WHERE w.op IN (SELECT o.op FROM romancy.waits o WHERE o.instance = x.value LIMIT :each)
UNION ALL SELECT {retry} FROM {listed} CROSS JOIN romancy.attempts a ON a.instance = x.value
WHERE a.op IN (SELECT o.op FROM romancy.attempts o WHERE o.instance = x.value AND o.next_due IS NOT NULL LIMIT :each)

-- === schedules ===

-- Differs: a transaction checks the version in a statement of its own.
-- part: outdated
NULL
-- name: advance_schedule
UPDATE romancy.schedules SET next_at = :next_at, due_at = :due_at, done_at = :done_at, former = :former,
  last_at = CASE WHEN :starts THEN :tick ELSE last_at END, last_instance = CASE WHEN :starts THEN :id ELSE last_instance END,
  started = started + :starts, error = NULL, stamp = :stamp, skipped = skipped + :skipped
WHERE name = :name AND stamp = :seen AND NOT paused RETURNING workflow
-- name: advance_triggered
UPDATE romancy.schedules SET last_at = :tick, last_instance = :id, started = started + 1, stamp = :stamp
WHERE name = :name AND NOT EXISTS (SELECT 1 FROM romancy.instances WHERE id = :id)
RETURNING workflow, queue, queue_key, priority
-- name: insert_scheduled
INSERT INTO romancy.instances (id, workflow, status, owner, token, birth, since, input, input_kind, deadline, created_at,
  updated_at, schedule, scheduled_at, queue, queue_key, priority)
SELECT :id, workflow, CASE WHEN :queue IS NULL THEN 1 ELSE 8 END, :owner, :stamp, :stamp,
  (SELECT coalesce(max(seq), 0) FROM romancy.events), input, input_kind, :at + timeout, :at, :at, name, :tick, :queue, :queue_key,
  :priority FROM romancy.schedules WHERE name = :name ON CONFLICT (id) DO NOTHING RETURNING id
-- name: insert_scheduled_attributes
INSERT INTO romancy.attributes (instance, name, value, created_at)
SELECT :id, a.key, a.value, :at FROM romancy.schedules s JOIN json_each(s.attributes) a WHERE s.name = :name
ON CONFLICT DO NOTHING

-- === sealed values ===

-- Files everything under other keys. Once for a file: it reads all of them.
-- name: refile_waits
UPDATE romancy.wait_keys SET key = romancy_key(key) WHERE key <> x''
-- name: refile_events
UPDATE romancy.event_keys SET key = romancy_key(key) WHERE key <> x''
-- name: refile_marks
UPDATE romancy.marks SET key = romancy_key(key) WHERE key <> x''
-- Lets only libraries with the codec write; those that were too old before still are.
-- name: shut_out
UPDATE romancy.schema_info SET min_reader = max(:reader, :sealed + min_reader)
