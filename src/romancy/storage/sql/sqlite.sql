-- Every statement of the SQLite backend, by name.
-- CROSS JOIN fixes the order of the tables: SQLite can't know that deliveries, requests and orphans are nearly empty.

-- name: fence
SELECT 1 FROM workers WHERE id = ?
-- name: horizon
SELECT coalesce(max(seq), 0) FROM events

-- name: insert_instance
INSERT INTO instances
  (id, workflow, status, owner, token, birth, since, input, input_kind, deadline, created_at, updated_at)
VALUES (?, ?, 1, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING
-- name: existing_instance
SELECT workflow, input, birth FROM instances WHERE id = ?

-- name: touch_instance
UPDATE instances SET version = version + 1, token = ?, updated_at = ?
WHERE id = ? AND owner = ? AND version = ? AND status < 9
-- name: advance_instance
UPDATE instances SET version = version + 1, token = ?, status = ?, owner = CASE WHEN ? THEN NULL ELSE owner END,
  updated_at = ?, finished_at = ?, output = ?, error = ?, description = coalesce(?, description)
WHERE id = ? AND owner = ? AND version = ? AND status < 9
-- name: instance_token
SELECT token FROM instances WHERE id = ?
-- name: insert_entry
INSERT INTO history (instance, n, kind, op, at, input, payload, event) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
-- name: append_entry
INSERT INTO history (instance, n, kind, op, at, input, payload, event) SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8
WHERE EXISTS (SELECT 1 FROM instances WHERE id = ?1 AND owner = ?9 AND version = ?10 AND status < 9)
  AND EXISTS (SELECT 1 FROM workers WHERE id = ?9)
ON CONFLICT DO NOTHING
-- name: may_append
SELECT 1 FROM instances WHERE id = ? AND owner = ? AND version = ? AND status < 9
-- name: entries_between
SELECT n, kind, op, at, input, payload, event FROM history WHERE instance = ? AND n BETWEEN ? AND ? ORDER BY n
-- name: insert_wait
INSERT INTO waits (instance, op, due_at, since, model, spec, location, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (instance, op) DO NOTHING
-- name: insert_wait_key
INSERT INTO wait_keys (type, shape, key, instance, op, follows, alike) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING
-- name: delete_wait
DELETE FROM waits WHERE instance = ? AND op = ?
-- name: delete_wait_keys
DELETE FROM wait_keys WHERE instance = ? AND op = ?
-- name: insert_consumed
INSERT INTO consumed (instance, event, op) VALUES (?, ?, ?)
-- name: set_mark
INSERT INTO marks (instance, type, shape, key, model, seq) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (instance, type, shape, key, model) DO UPDATE SET seq = excluded.seq
-- name: insert_misfit
INSERT INTO misfits (instance, model, event, op, error) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING
-- name: delete_delivery
DELETE FROM deliveries WHERE instance = ? AND event = ?
-- name: delete_deliveries
DELETE FROM deliveries WHERE instance = ?
-- name: set_attempt
INSERT INTO attempts (instance, op, n, first_at, next_due, error, progress, crashes, started)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (instance, op) DO UPDATE SET n = excluded.n,
  next_due = excluded.next_due, error = excluded.error, progress = excluded.progress, crashes = excluded.crashes,
  started = excluded.started, suspected_at = NULL
-- The same for a suspect, with what speaks for and against it.
-- name: set_suspect
INSERT INTO attempts (instance, op, n, first_at, next_due, error, progress, crashes, started,
  suspected_at, tried, tried_alone, alone, run, is_alone, culprit)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (instance, op) DO UPDATE SET n = excluded.n,
  next_due = excluded.next_due, error = excluded.error, progress = excluded.progress, crashes = excluded.crashes,
  started = excluded.started, suspected_at = excluded.suspected_at, tried = excluded.tried,
  tried_alone = excluded.tried_alone, alone = excluded.alone, run = excluded.run, is_alone = excluded.is_alone,
  culprit = excluded.culprit
-- name: insert_trial
INSERT INTO trials (culprit, at, since, tried_alone, alone) VALUES (?, ?, ?, ?, ?)
-- name: delete_attempt
DELETE FROM attempts WHERE instance = ? AND op = ?
-- name: delete_attempts
DELETE FROM attempts WHERE instance = ?
-- name: delete_request
DELETE FROM requests WHERE id = ?
-- name: delete_requests
DELETE FROM requests WHERE instance = ?

-- name: insert_event
INSERT INTO events (source, id, type, subject, time, target, attrs, data, token, accepted_at, expires_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (source, id) DO NOTHING
-- name: existing_event
SELECT seq, token, type, subject, target, attrs, data FROM events WHERE source = ? AND id = ?
-- name: set_differed
UPDATE events SET differed_at = ? WHERE seq = ? AND differed_at IS NULL
-- name: shapes
SELECT id, fields FROM shapes WHERE type = ?
-- name: insert_shape
INSERT INTO shapes (type, fields) VALUES (?, ?)
-- name: events_of_type
SELECT seq, subject, source, data, attrs FROM events WHERE type = ?
-- name: insert_event_key
INSERT INTO event_keys (shape, key, seq) VALUES (?, ?, ?) ON CONFLICT DO NOTHING
-- Waits that are not followers come first, then followers. One follower is enough: what it takes leads to the next.
-- name: waits_of_key
SELECT k.instance, k.op, w.model, w.spec, w.since IS NULL, k.alike
FROM wait_keys k CROSS JOIN waits w ON w.instance = k.instance AND w.op = k.op
WHERE k.type = ? AND k.shape = ? AND k.key = ? ORDER BY k.follows, k.instance, k.alike, k.op
-- From the followers of one kind to those of the next by the index: in the same instance, then in others. Not in one
-- statement by (instance, alike) > (?, ?): for that SQLite would go through all of the instance.
-- name: next_followers
SELECT k.instance, k.op, w.model, w.spec, w.since IS NULL, k.alike
FROM wait_keys k CROSS JOIN waits w ON w.instance = k.instance AND w.op = k.op
WHERE k.type = ? AND k.shape = ? AND k.key = ? AND k.follows = 1 AND k.instance = ? AND k.alike > ?
ORDER BY k.alike, k.op LIMIT 1
-- name: followers_elsewhere
SELECT k.instance, k.op, w.model, w.spec, w.since IS NULL, k.alike
FROM wait_keys k CROSS JOIN waits w ON w.instance = k.instance AND w.op = k.op
WHERE k.type = ? AND k.shape = ? AND k.key = ? AND k.follows = 1 AND k.instance > ?
ORDER BY k.instance, k.alike, k.op LIMIT 1
-- For an event that is meant for one instance.
-- name: waits_of_key_and_target
SELECT k.instance, k.op, w.model, w.spec, w.since IS NULL, k.alike
FROM wait_keys k CROSS JOIN waits w ON w.instance = k.instance AND w.op = k.op
WHERE k.type = ? AND k.shape = ? AND k.key = ? AND k.follows = 0 AND k.instance = ? AND k.alike = x'' ORDER BY k.op
-- For events with so many values that looking for each of them would take longer.
-- name: waits_of_shape
SELECT k.instance, min(k.op), w.model, w.spec FROM wait_keys k JOIN waits w ON w.instance = k.instance AND w.op = k.op
WHERE k.type = ?1 AND k.shape = ?2 AND (?3 IS NULL OR k.instance = ?3)
GROUP BY k.instance, w.model, w.spec, CASE WHEN w.since IS NULL THEN '' ELSE k.op END
-- name: insert_delivery
INSERT INTO deliveries (instance, event) VALUES (?, ?) ON CONFLICT DO NOTHING
-- name: triggers_of_type
SELECT workflow, timeout FROM triggers WHERE type = ?

-- name: wait_to_look
SELECT w.op, coalesce(w.since, i.since), w.since IS NULL OR w.since >= i.since, w.model, w.spec, i.owner, w.since IS NULL
FROM waits w JOIN instances i ON i.id = w.instance WHERE w.instance = ? AND w.op = ? AND i.status < 9
-- name: waits_to_look
SELECT min(w.op), coalesce(w.since, i.since), w.since IS NULL OR w.since >= i.since, w.model, w.spec, i.owner,
  w.since IS NULL
FROM waits w JOIN instances i ON i.id = w.instance WHERE w.instance = ? AND w.spec <> x'' AND i.status < 9
GROUP BY w.model, w.spec, CASE WHEN w.since IS NULL THEN '' ELSE w.op END
-- name: keys_of_wait
SELECT k.type, k.shape, k.key, m.seq FROM wait_keys k LEFT JOIN marks m
  ON m.instance = k.instance AND m.type = k.type AND m.shape = k.shape AND m.key = k.key AND m.model = ?
WHERE k.instance = ? AND k.op = ?
-- name: look_unfiltered
SELECT seq FROM events e WHERE type = ? AND target IS NULL AND seq > ? AND (expires_at IS NULL OR expires_at > ?)
  AND NOT EXISTS (SELECT 1 FROM consumed c WHERE c.instance = ? AND c.event = e.seq)
  AND NOT EXISTS (SELECT 1 FROM misfits f WHERE f.instance = ? AND f.model = ? AND f.event = e.seq)
ORDER BY seq LIMIT 1
-- name: look_targeted
SELECT seq FROM events e WHERE type = ? AND target = ? AND seq > ? AND (expires_at IS NULL OR expires_at > ?)
  AND NOT EXISTS (SELECT 1 FROM consumed c WHERE c.instance = ? AND c.event = e.seq)
  AND NOT EXISTS (SELECT 1 FROM misfits f WHERE f.instance = ? AND f.model = ? AND f.event = e.seq)
ORDER BY seq LIMIT 1
-- name: look_filtered
SELECT e.seq FROM event_keys k JOIN events e ON e.seq = k.seq
WHERE k.shape = ? AND k.key = ? AND k.seq > ? AND (e.target IS NULL OR e.target = ?)
  AND (e.expires_at IS NULL OR e.expires_at > ?)
  AND NOT EXISTS (SELECT 1 FROM consumed c WHERE c.instance = ? AND c.event = e.seq)
  AND NOT EXISTS (SELECT 1 FROM misfits f WHERE f.instance = ? AND f.model = ? AND f.event = e.seq)
ORDER BY k.seq LIMIT 1
-- name: look_scan
SELECT e.seq, e.subject, e.source, e.data, e.attrs FROM events e
WHERE e.type = ? AND (e.target IS NULL OR e.target = ?) AND e.seq > ? AND (e.expires_at IS NULL OR e.expires_at > ?)
  AND NOT EXISTS (SELECT 1 FROM consumed c WHERE c.instance = ? AND c.event = e.seq)
  AND NOT EXISTS (SELECT 1 FROM misfits f WHERE f.instance = ? AND f.model = ? AND f.event = e.seq)
ORDER BY e.seq
-- name: event
SELECT seq, source, id, type, subject, time, target, attrs, data, accepted_at, expires_at FROM events WHERE seq = ?
-- The last event before those accepted since a time. Processes store at the same time, so what was accepted a little
-- earlier may be stored later; it counts, too. A limit, since a time may be long ago.
-- name: last_before
SELECT coalesce(min(seq) - 1, (SELECT coalesce(max(seq), 0) FROM events))
FROM (SELECT seq FROM events WHERE accepted_at >= ? ORDER BY accepted_at LIMIT 1000)

-- name: insert_request
INSERT INTO requests (instance, kind, payload, at) VALUES (?, ?, ?, ?)
-- name: request_target
SELECT status, owner FROM instances WHERE id = ?
-- name: cancel_blocked
UPDATE instances SET status = 12, owner = NULL, version = version + 1, finished_at = ?, updated_at = ?, error = ?
WHERE id = ? AND status = 9
-- name: cancel_unstarted
UPDATE instances SET status = 12, version = version + 1, finished_at = ?, updated_at = ?, error = ?
WHERE id = ? AND status = 1 AND owner IS NULL AND version = 0
-- name: resume_blocked
UPDATE instances SET status = 1, owner = NULL, version = version + 1, error = NULL WHERE id = ? AND status = 9

-- A blocked instance that is resumed begins without a record.
-- name: forget_suspected_body
DELETE FROM attempts WHERE instance = ? AND op = ''
-- name: forget_suspected_calls
UPDATE attempts SET crashes = 0, started = 0, next_due = NULL, suspected_at = NULL
WHERE instance = ? AND (crashes > 0 OR suspected_at IS NOT NULL)

-- name: schema_version
SELECT version, min_reader FROM schema_info
-- name: insert_worker
INSERT INTO workers (id, host, until, started_at) VALUES (?, ?, ?, ?)
-- name: renew_worker
UPDATE workers SET until = ? WHERE id = ?
-- name: delete_worker
DELETE FROM workers WHERE id = ?
-- name: leave_worker
UPDATE workers SET leaving = 1 WHERE id = ?
-- name: workers
SELECT id, until FROM workers
-- name: leaving_worker
SELECT leaving, started_at, until FROM workers WHERE id = ?
-- When a dead worker was last heard of. Who was there when it last renewed its lease sees its death at once; who was not
-- knows only what it wrote. That a suspect begins, or runs on, is such a sign.
-- name: last_sign
SELECT max(?1, coalesce((SELECT max(updated_at) FROM instances WHERE owner = ?2 AND status < 9 AND status = 1), 0),
  coalesce((SELECT CASE WHEN started_at <= ?1 THEN ?4 END FROM workers WHERE id = ?3), 0))
-- name: insert_death
INSERT INTO deaths (worker, since, at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING
-- name: forget_deaths
DELETE FROM deaths WHERE at < ?
-- name: forget_trials
DELETE FROM trials WHERE at < ?
-- name: deaths
SELECT since, at FROM deaths ORDER BY at DESC LIMIT ?
-- name: tallies
SELECT culprit, min(since), sum(tried_alone), sum(alone), sum(ended) FROM (
  SELECT culprit, suspected_at AS since, tried_alone, alone, 0 AS ended FROM attempts
  WHERE suspected_at > ?1 AND tried_alone > 0
  UNION ALL SELECT culprit, since, tried_alone, alone, 1 FROM trials WHERE at > ?1) GROUP BY culprit
-- name: insert_orphan
INSERT INTO orphans (id, at, clean) SELECT ?, ?, ? WHERE EXISTS (SELECT 1 FROM instances WHERE owner = ? AND status < 9)
-- name: delete_spent_orphans
DELETE FROM orphans WHERE NOT EXISTS (SELECT 1 FROM instances i WHERE i.owner = orphans.id AND i.status < 9)
-- Owners that no row tells of, because somebody deleted it by hand. From one owner to the next by the index.
-- name: orphan_unknown
WITH RECURSIVE owners (owner) AS (SELECT min(owner) FROM instances WHERE status < 9
  UNION ALL SELECT (SELECT min(i.owner) FROM instances i WHERE i.status < 9 AND i.owner > owners.owner)
    FROM owners WHERE owners.owner IS NOT NULL)
INSERT INTO orphans (id, at, clean) SELECT owner, ?, 0 FROM owners WHERE owner IS NOT NULL
  AND owner NOT IN (SELECT id FROM workers) AND owner NOT IN (SELECT id FROM orphans)
-- name: clean_orphans
SELECT id FROM orphans WHERE clean = 1
-- name: delete_triggers
DELETE FROM triggers WHERE workflow = ?
-- name: insert_trigger
INSERT INTO triggers (type, workflow, timeout) VALUES (?, ?, ?) ON CONFLICT DO NOTHING

-- name: claim
UPDATE instances SET owner = ?, version = version + 1 WHERE id = ? AND status < 9
  AND (owner IS NULL OR owner IN (SELECT id FROM orphans))
-- name: free_running
SELECT id, owner FROM instances WHERE owner IS NULL AND status = 1 AND workflow = ? LIMIT ?
-- name: orphaned_running
SELECT i.id, i.owner FROM orphans o CROSS JOIN instances i ON i.owner = o.id AND i.status = 1
WHERE i.workflow IN (SELECT value FROM json_each(?)) LIMIT ?
-- name: free_with_mail
SELECT DISTINCT i.id, i.owner FROM deliveries d CROSS JOIN instances i ON i.id = d.instance
WHERE i.status < 9 AND (i.owner IS NULL OR i.owner IN (SELECT id FROM orphans))
  AND i.workflow IN (SELECT value FROM json_each(?)) LIMIT ?
-- name: free_with_request
SELECT DISTINCT i.id, i.owner FROM requests r CROSS JOIN instances i ON i.id = r.instance
WHERE i.status < 9 AND (i.owner IS NULL OR i.owner IN (SELECT id FROM orphans))
  AND i.workflow IN (SELECT value FROM json_each(?)) LIMIT ?
-- name: free_due
SELECT DISTINCT i.id, i.owner FROM waits w CROSS JOIN instances i ON i.id = w.instance
WHERE w.due_at <= ? AND i.status < 9 AND (i.owner IS NULL OR i.owner IN (SELECT id FROM orphans))
  AND i.workflow IN (SELECT value FROM json_each(?)) ORDER BY w.due_at LIMIT ?

-- Balancing: who owns how many, who may leave, who is free. Two statuses are those of instances that only wait.
-- name: shares
SELECT w.id, (SELECT count(*) FROM (SELECT 1 FROM instances i WHERE i.owner = w.id AND i.status < 9 LIMIT ?))
FROM workers w WHERE w.until >= ? AND (SELECT count(*) FROM workers) > 1
-- name: free_waiting
SELECT id FROM instances WHERE owner IS NULL AND status < 9 AND status IN (2, 3) AND workflow = ? LIMIT ?
-- name: idle_of_worker
SELECT id, version, status FROM instances i WHERE owner = ? AND status < 9 AND status IN (2, 3)
  AND NOT EXISTS (SELECT 1 FROM waits w WHERE w.instance = i.id AND w.due_at <= ?)
  AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.instance = i.id)
  AND NOT EXISTS (SELECT 1 FROM requests r WHERE r.instance = i.id) LIMIT ?

-- name: mail_deliveries
SELECT d.instance, d.event FROM deliveries d CROSS JOIN instances i ON i.id = d.instance
WHERE i.owner = ? AND i.status < 9 ORDER BY d.event LIMIT ?
-- name: mail_requests
SELECT r.id, r.instance, r.kind, r.payload FROM requests r CROSS JOIN instances i ON i.id = r.instance
WHERE i.owner = ? AND i.status < 9 ORDER BY r.id LIMIT ?
-- name: due_waits
SELECT w.due_at, w.instance, w.op FROM waits w INDEXED BY waits_due CROSS JOIN instances i ON i.id = w.instance
WHERE w.due_at <= ? AND i.owner = ? AND i.status < 9 ORDER BY w.due_at LIMIT ?

-- name: due_retries
SELECT a.next_due, a.instance, a.op FROM attempts a INDEXED BY attempts_due CROSS JOIN instances i ON i.id = a.instance
WHERE a.next_due <= ? AND i.owner = ? AND i.status < 9 ORDER BY a.next_due LIMIT ?

-- Those with a retry need not be in memory before it falls due.
-- name: running_of_worker
SELECT id FROM instances i WHERE owner = ? AND status = 1
  AND NOT EXISTS (SELECT 1 FROM attempts a WHERE a.instance = i.id AND a.next_due IS NOT NULL)
-- name: worker
SELECT id, host, until, started_at FROM workers WHERE id = ?
-- name: misfits_of_instance
SELECT event, op, error FROM misfits WHERE instance = ? ORDER BY event LIMIT 100

-- name: instance
SELECT id, workflow, status, owner, version, input, input_kind, output, error, deadline, description, created_at,
  updated_at, finished_at FROM instances WHERE id = ?
-- name: known_instance
SELECT 1 FROM instances WHERE id = ?
-- name: finished_instance
SELECT id, workflow, status, owner, version, input, input_kind, output, error, deadline, description, created_at,
  updated_at, finished_at FROM instances WHERE id = ? AND status >= 9
-- name: history
SELECT n, kind, op, at, input, payload, event FROM history WHERE instance = ? ORDER BY n
-- name: waits_of_instance
SELECT op, due_at FROM waits WHERE instance = ?
-- name: attempts_of_instance
SELECT op, n, first_at, next_due, error, progress, crashes, started, culprit, suspected_at, tried, tried_alone, alone,
  run, is_alone FROM attempts WHERE instance = ?
-- name: requests_of_instance
SELECT id, kind, payload FROM requests WHERE instance = ? ORDER BY id
-- name: deliveries_of_instance
SELECT event FROM deliveries WHERE instance = ? ORDER BY event
-- name: listed_event
SELECT seq, source, id, type, subject, time, target, attrs, data, accepted_at, expires_at, differed_at FROM events WHERE seq = ?
-- name: receivers
SELECT instance, op FROM consumed WHERE event = ? ORDER BY instance LIMIT 100

-- name: prunable_instances
SELECT id FROM instances WHERE finished_at IS NOT NULL AND finished_at < max(?1, ?2)
  AND finished_at < CASE status WHEN 11 THEN ?2 ELSE ?1 END LIMIT ?3
-- name: prunable_events
SELECT seq FROM events WHERE accepted_at < ? AND (expires_at IS NULL OR expires_at < ?)
  AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.event = seq) ORDER BY accepted_at LIMIT ?
-- name: forget_expired_data
UPDATE events SET data = NULL WHERE expires_at < ? AND data IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.event = seq)

-- The catalog: what people look at. Long values are cut short here, so that they are never read.
-- name: count_status
SELECT count(*) FROM (SELECT 1 FROM instances INDEXED BY instances_status WHERE status = ? LIMIT ?)
-- name: summary
SELECT id, workflow, status, CASE WHEN length(error) <= 65536 THEN error END, description, created_at, finished_at
FROM instances WHERE id = ?
-- name: whole
SELECT id, workflow, status, owner, version,
  CASE WHEN length(input) <= 65536 THEN input ELSE substr(input, 1, 4096) END, input_kind,
  CASE WHEN length(output) <= 65536 THEN output ELSE substr(output, 1, 4096) END, error, deadline, description,
  created_at, updated_at, finished_at, length(input), coalesce(length(output), 0),
  (SELECT coalesce(max(n), 0) FROM history WHERE instance = i.id)
FROM instances i WHERE id = ?
-- name: shown_entries
SELECT n, kind, op, at, CASE WHEN length(input) <= 65536 THEN input ELSE substr(input, 1, 4096) END,
  CASE WHEN length(payload) <= 65536 THEN payload ELSE substr(payload, 1, 4096) END, event,
  coalesce(length(input), 0), coalesce(length(payload), 0)
FROM history WHERE instance = ? AND n > ? ORDER BY n LIMIT ?
-- name: few_waits
SELECT w.instance, i.workflow, w.op, CASE WHEN w.spec = x'' THEN 'timer' ELSE 'event' END, w.spec, w.created_at,
  w.due_at, w.location, NULL FROM waits w JOIN instances i ON i.id = w.instance WHERE w.instance = ? LIMIT ?
-- name: few_retries
SELECT a.instance, i.workflow, a.op, 'retry', x'', a.first_at, a.next_due, '', a.error
FROM attempts a JOIN instances i ON i.id = a.instance WHERE a.instance = ? AND a.next_due IS NOT NULL LIMIT ?
-- name: next_wait_type
SELECT min(type) FROM wait_keys WHERE type > ?
-- name: count_waits
SELECT count(*) FROM (SELECT 1 FROM wait_keys WHERE type = ? LIMIT ?)
-- name: waits_for_type
SELECT k.shape, k.key, k.alike, w.instance, i.workflow, w.op, 'event', w.spec, w.created_at, w.due_at, w.location, NULL
FROM wait_keys k CROSS JOIN waits w ON w.instance = k.instance AND w.op = k.op
  CROSS JOIN instances i ON i.id = k.instance
WHERE k.type = ? AND (k.shape, k.key, k.follows, k.instance, k.alike, k.op) > (?, ?, ?, ?, ?, ?)
ORDER BY k.shape, k.key, k.follows, k.instance, k.alike, k.op LIMIT ?
-- name: coming_waits
SELECT w.instance, i.workflow, w.op, CASE WHEN w.spec = x'' THEN 'timer' ELSE 'event' END, w.spec, w.created_at,
  w.due_at, w.location, NULL
FROM waits w INDEXED BY waits_due CROSS JOIN instances i ON i.id = w.instance
WHERE w.due_at > ? AND w.due_at <= ? ORDER BY w.due_at LIMIT ?
-- name: coming_retries
SELECT a.instance, i.workflow, a.op, 'retry', x'', a.first_at, a.next_due, '', a.error
FROM attempts a INDEXED BY attempts_due CROSS JOIN instances i ON i.id = a.instance
WHERE a.next_due > ? AND a.next_due <= ? ORDER BY a.next_due LIMIT ?
-- name: shown_event
SELECT seq, source, id, type, subject, time, target, attrs,
  CASE WHEN length(data) <= 65536 THEN data ELSE substr(data, 1, 4096) END, accepted_at, expires_at,
  coalesce(length(data), 0), differed_at FROM events e WHERE source = ? AND id = ?
-- name: count_started
SELECT count(*) FROM (SELECT 1 FROM instances INDEXED BY instances_created WHERE created_at > ? LIMIT ?)
-- name: count_finished
SELECT count(*) FROM (SELECT 1 FROM instances INDEXED BY instances_finished WHERE finished_at > ? LIMIT ?)
-- name: count_accepted
SELECT count(*) FROM (SELECT 1 FROM events INDEXED BY events_accepted WHERE accepted_at > ? LIMIT ?)

-- The viewer's sessions. One more makes room: those whose time is over go, and the oldest of too many.
-- name: delete_old_sessions
DELETE FROM sessions WHERE until <= ? OR key NOT IN (SELECT key FROM sessions ORDER BY until DESC, key LIMIT ?)
-- name: insert_session
INSERT INTO sessions (key, proof, until) VALUES (?, ?, ?)
-- name: session
SELECT proof, until FROM sessions WHERE key = ?
-- name: delete_session
DELETE FROM sessions WHERE key = ?
