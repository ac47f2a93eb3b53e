-- Workers, claims, pruning and reads of the PostgreSQL backend; see the head of postgres.sql.

-- === workers and claims; :now is null but in tests: then the database's clock rules ===

-- name: announce
WITH wanted AS MATERIALIZED (SELECT * FROM unnest(:types::text[], :names::text[], :timeouts::bigint[])
    AS x(type, workflow, timeout)),
gone AS (DELETE FROM romancy.triggers t WHERE t.workflow = ANY(:workflows::text[])
  AND NOT EXISTS (SELECT 1 FROM wanted w WHERE w.type = t.type AND w.workflow = t.workflow) AND {outdated} IS NULL)
INSERT INTO romancy.triggers (type, workflow, timeout) SELECT type, workflow, timeout FROM wanted
WHERE {outdated} IS NULL ORDER BY 1, 2
ON CONFLICT (type, workflow) DO UPDATE SET timeout = excluded.timeout
WHERE triggers.timeout IS DISTINCT FROM excluded.timeout
-- name: insert_worker
INSERT INTO romancy.workers (id, host, until, started_at, has_session)
SELECT :worker::text, :host::text, now + :lease::bigint, now, :session::boolean FROM {now}
RETURNING started_at AS now, {readers}
-- name: renew_worker
UPDATE romancy.workers SET until = now + :lease::bigint, has_session = :session::boolean FROM {now}
WHERE id = :worker::text RETURNING now, {readers}
-- name: readers
(SELECT version FROM romancy.schema_info) AS version, (SELECT min_reader FROM romancy.schema_info) AS min_reader
-- name: readers_now
SELECT {readers}
-- It was asked to stop: whatever becomes of it from here on, it is not a death.
-- name: leave_worker
UPDATE romancy.workers SET leaving = true WHERE id = :worker::text
-- Not heard of since the server was started, or since we had trouble with it: perhaps it had trouble, too.
-- name: other_workers
SELECT id, until < now AS ended, has_session, until - :lease::bigint <= greatest(now - :trouble::bigint,
  (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint) AS cut_off
FROM romancy.workers, {now} WHERE id <> :worker::text
-- name: session_locks
SELECT classid::bigint AS high, objid::bigint AS low FROM pg_locks
WHERE locktype = 'advisory' AND objsubid = 1 AND granted
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
-- Its instances are looked at in a later statement: this one waits for commits under way, and can't see them.
-- One whose session is gone died when that was first missed, if we were there when it last renewed its lease. Else it may
-- have died long ago: all we know is when it was last heard of. That a suspect begins, or runs on, is such a sign.
-- name: bury
WITH gone AS (DELETE FROM romancy.workers w USING unnest(:workers::text[], :clean::boolean[]) AS x(id, clean), {now}
  WHERE w.id = x.id AND (w.until < now OR w.id = ANY(:lost::text[]))
  RETURNING w.id, x.clean OR w.leaving AS clean, now, w.started_at AS since,
    CASE WHEN w.id = ANY(:lost) AND (SELECT started_at FROM romancy.workers m WHERE m.id = :by::text) <= w.until - :lease::bigint
      THEN now - :missed::bigint ELSE greatest(w.until - :lease, (SELECT max(i.updated_at) FROM romancy.instances i
        WHERE i.owner = w.id AND i.status < 9 AND i.status = 1)) END AS seen),
dead AS (INSERT INTO romancy.deaths (worker, since, at)
  SELECT id, since, greatest(since, least(seen, now)) FROM gone WHERE NOT clean ON CONFLICT DO NOTHING)
INSERT INTO romancy.orphans (id, at, clean) SELECT id, now, clean FROM gone ON CONFLICT DO NOTHING RETURNING id
-- name: count_of_worker
SELECT count(*) FROM (SELECT 1 FROM romancy.instances i WHERE i.owner = :worker::text AND i.status < 9
  ORDER BY i.status, i.id LIMIT :most::integer) x
-- name: delete_spent_orphans
DELETE FROM romancy.orphans o WHERE NOT EXISTS (SELECT 1 FROM romancy.instances i WHERE i.owner = o.id AND i.status < 9)
-- Owners that no row tells of, because somebody deleted it by hand. From one owner to the next by the index.
-- name: orphan_unknown
WITH RECURSIVE owners AS ((SELECT i.owner FROM romancy.instances i WHERE i.status < 9 AND i.owner IS NOT NULL
    ORDER BY i.owner, i.status, i.id LIMIT 1)
  UNION ALL SELECT (SELECT i.owner FROM romancy.instances i WHERE i.status < 9 AND i.owner > o.owner
    ORDER BY i.owner, i.status, i.id LIMIT 1) FROM owners o WHERE o.owner IS NOT NULL)
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
WITH t AS (DELETE FROM romancy.trials WHERE at < :before::bigint)
DELETE FROM romancy.deaths WHERE at < :before
-- name: now
(SELECT coalesce(:now::bigint, {time}) AS now) AS clock
-- name: time
(extract(epoch FROM clock_timestamp()) * 1000000)::bigint
-- Which database of which server this is.
-- name: place
SELECT datname AS name, oid::bigint AS oid, pg_postmaster_start_time() AS since FROM pg_database
WHERE datname = current_database()
-- name: tell_time
SELECT {time} AS now

-- Reads only, so that a sweep that finds nothing writes nothing. ORDER BY makes it go by the index, also when the
-- planner believes that there is plenty and any row will do.
-- name: is_claimable
SELECT EXISTS (SELECT 1 FROM unnest(:workflows::text[]) AS w(name) CROSS JOIN LATERAL
    (SELECT 1 FROM romancy.instances i WHERE i.owner IS NULL AND i.status = 1 AND i.workflow = w.name
     ORDER BY i.id LIMIT 1) i)
  OR EXISTS (SELECT 1 FROM romancy.orphans o CROSS JOIN LATERAL (SELECT 1 FROM romancy.instances i
      WHERE i.owner = o.id AND i.status = 1 AND i.workflow = ANY(:workflows) ORDER BY i.id LIMIT 1) i)
  OR EXISTS (SELECT 1 FROM romancy.deliveries d CROSS JOIN LATERAL (SELECT 1 FROM romancy.instances i
      WHERE i.id = d.instance AND {claimable} OFFSET 0) i)
  OR EXISTS (SELECT 1 FROM romancy.unlooked d CROSS JOIN LATERAL (SELECT 1 FROM romancy.instances i
      WHERE i.id = d.instance AND {claimable} OFFSET 0) i)
  OR EXISTS (SELECT 1 FROM romancy.requests d CROSS JOIN LATERAL (SELECT 1 FROM romancy.instances i
      WHERE i.id = d.instance AND {claimable} OFFSET 0) i)
  OR (EXISTS (SELECT 1 FROM romancy.orphans)
      OR EXISTS (SELECT 1 FROM unnest(:workflows) AS w(name) CROSS JOIN LATERAL (SELECT 1 FROM romancy.instances i
        WHERE i.owner IS NULL AND i.status < 9 AND i.workflow = w.name
        ORDER BY i.status, i.id LIMIT 1) i))
    AND (SELECT true FROM (SELECT instance FROM romancy.waits WHERE due_at <= :due::bigint ORDER BY due_at) d
      CROSS JOIN LATERAL (SELECT 1 FROM romancy.instances i WHERE i.id = d.instance AND {claimable} OFFSET 0) i
      LIMIT 1) IS NOT NULL
-- name: claimable
i.status < 9 AND i.workflow = ANY(:workflows::text[])
  AND (i.owner IS NULL OR EXISTS (SELECT 1 FROM romancy.orphans o WHERE o.id = i.owner))
-- Others may be at it too: what they have locked is passed over. Running ones go by workflow, each its share.
-- name: claim
WITH fence AS MATERIALIZED (SELECT id FROM romancy.workers WHERE id = :worker::text FOR KEY SHARE),
asked AS MATERIALIZED (SELECT i.id FROM (SELECT DISTINCT instance FROM romancy.requests) d CROSS JOIN LATERAL
  (SELECT i.id FROM romancy.instances i WHERE i.id = d.instance AND {claimable} FOR NO KEY UPDATE SKIP LOCKED) i
  LIMIT :limit::integer),
mailed AS MATERIALIZED (SELECT i.id FROM (SELECT DISTINCT instance FROM romancy.deliveries) d CROSS JOIN LATERAL
  (SELECT i.id FROM romancy.instances i WHERE i.id = d.instance AND {claimable} FOR NO KEY UPDATE SKIP LOCKED) i
  LIMIT :limit),
unlooked AS MATERIALIZED (SELECT i.id FROM romancy.unlooked d CROSS JOIN LATERAL
  (SELECT i.id FROM romancy.instances i WHERE i.id = d.instance AND {claimable} FOR NO KEY UPDATE SKIP LOCKED) i
  LIMIT :limit),
free AS MATERIALIZED (SELECT i.id FROM unnest(:workflows::text[]) AS w(name) CROSS JOIN LATERAL
  (SELECT i.id FROM romancy.instances i WHERE i.owner IS NULL AND i.status = 1 AND i.workflow = w.name
   ORDER BY i.id LIMIT :share::integer FOR NO KEY UPDATE SKIP LOCKED) i),
orphaned AS MATERIALIZED (SELECT i.id FROM romancy.orphans o CROSS JOIN LATERAL
  (SELECT i.id FROM romancy.instances i WHERE i.owner = o.id AND i.status = 1 AND i.workflow = ANY(:workflows)
   ORDER BY i.id LIMIT :limit FOR NO KEY UPDATE SKIP LOCKED) i LIMIT :limit),
due AS MATERIALIZED (SELECT i.id FROM (SELECT instance, due_at FROM romancy.waits WHERE due_at <= :due::bigint
    ORDER BY due_at) d CROSS JOIN LATERAL
  (SELECT i.id FROM romancy.instances i WHERE i.id = d.instance AND {claimable} FOR NO KEY UPDATE SKIP LOCKED) i
  LIMIT :limit),
wanted AS MATERIALIZED (SELECT id, min(turn) AS turn FROM (
    SELECT id, 1 AS turn FROM asked UNION ALL SELECT id, 2 FROM mailed UNION ALL SELECT id, 2 FROM unlooked
    UNION ALL SELECT id, 3 FROM free UNION ALL SELECT id, 4 FROM orphaned UNION ALL SELECT id, 5 FROM due) x
  GROUP BY id ORDER BY min(turn) LIMIT :limit),
before AS MATERIALIZED (SELECT i.id, i.owner IS NOT NULL AND NOT coalesce(o.clean, false) AS crashed, w.turn = 5 AS waits
  FROM wanted w JOIN romancy.instances i ON i.id = w.id LEFT JOIN romancy.orphans o ON o.id = i.owner),
taken AS (UPDATE romancy.instances i SET owner = fence.id, version = i.version + 1 FROM before b, fence
  WHERE i.id = b.id RETURNING i.id)
SELECT b.id, b.crashed, b.waits FROM before b JOIN taken t ON t.id = b.id

-- === balancing: who owns how many, who may leave, who is free; statuses 2 and 3 are of instances that only wait ===

-- name: shares
SELECT w.id, o.n FROM romancy.workers w CROSS JOIN {now} CROSS JOIN LATERAL (SELECT count(*) AS n FROM (
    SELECT 1 FROM romancy.instances i WHERE i.owner = w.id AND i.status < 9 ORDER BY i.status, i.id
    LIMIT :most::integer) x) o
WHERE w.until >= now AND (SELECT count(*) FROM romancy.workers) > 1
UNION ALL SELECT NULL, count(*) FROM (SELECT 1 FROM unnest(:workflows::text[]) AS w(name) CROSS JOIN LATERAL
    (SELECT 1 FROM romancy.instances i WHERE i.owner IS NULL AND i.status < 9 AND i.status IN (2, 3)
       AND i.workflow = w.name ORDER BY i.status, i.id LIMIT :limit::integer) i
  WHERE (SELECT count(*) FROM romancy.workers) > 1 LIMIT :limit) free
-- name: idle_of_worker
SELECT i.id, i.version, i.status FROM romancy.instances i
WHERE i.owner = :worker::text AND i.status < 9 AND i.status IN (2, 3)
  AND NOT EXISTS (SELECT 1 FROM romancy.waits w WHERE w.instance = i.id AND w.due_at <= :due::bigint OFFSET 0)
  AND NOT EXISTS (SELECT 1 FROM romancy.deliveries d WHERE d.instance = i.id OFFSET 0)
  AND NOT EXISTS (SELECT 1 FROM romancy.requests r WHERE r.instance = i.id OFFSET 0)
  AND NOT EXISTS (SELECT 1 FROM romancy.unlooked l WHERE l.instance = i.id OFFSET 0)
ORDER BY i.status, i.id LIMIT :limit::integer
-- Those that have not looked for events are claimed in the ordinary way, by which they look.
-- name: claim_idle
WITH fence AS MATERIALIZED (SELECT id FROM romancy.workers WHERE id = :worker::text FOR KEY SHARE),
free AS MATERIALIZED (SELECT i.id FROM unnest(:workflows::text[]) AS w(name) CROSS JOIN LATERAL
  (SELECT i.id FROM romancy.instances i WHERE i.owner IS NULL AND i.status < 9 AND i.status IN (2, 3)
     AND i.workflow = w.name AND NOT EXISTS (SELECT 1 FROM romancy.unlooked l WHERE l.instance = i.id OFFSET 0)
   ORDER BY i.status, i.id LIMIT :limit::integer FOR NO KEY UPDATE OF i SKIP LOCKED) i LIMIT :limit)
UPDATE romancy.instances i SET owner = fence.id, version = i.version + 1 FROM free f, fence WHERE i.id = f.id
RETURNING i.id

-- A hint or a request may come in just after its instance ended: whoever wrote it saw it alive.
-- name: delete_spent_mail
WITH d AS (DELETE FROM romancy.deliveries d USING romancy.deliveries x CROSS JOIN LATERAL
    (SELECT 1 FROM romancy.instances i WHERE i.id = x.instance AND i.status >= 10 OFFSET 0) i
  WHERE d.instance = x.instance AND d.event = x.event)
DELETE FROM romancy.requests r USING romancy.requests x CROSS JOIN LATERAL
  (SELECT 1 FROM romancy.instances i WHERE i.id = x.instance AND i.status >= 10 OFFSET 0) i
WHERE r.id = x.id
-- name: prunable_instances
SELECT id FROM romancy.instances WHERE finished_at < greatest(:before::bigint, :failed::bigint)
  AND finished_at < CASE status WHEN 11 THEN :failed ELSE :before END ORDER BY finished_at LIMIT :limit::integer
-- Asked again under the lock: another worker may have pruned it meanwhile, and its id may belong to a new instance.
-- What another worker is pruning at the moment is left to it.
-- name: prune_instances
WITH gone AS MATERIALIZED (SELECT id FROM romancy.instances WHERE id = ANY(:ids::text[])
  AND finished_at < CASE status WHEN 11 THEN :failed::bigint ELSE :before::bigint END ORDER BY id FOR UPDATE SKIP LOCKED),
h AS (DELETE FROM romancy.history WHERE instance IN (SELECT id FROM gone)),
c AS (DELETE FROM romancy.consumed WHERE instance IN (SELECT id FROM gone)),
m AS (DELETE FROM romancy.marks WHERE instance IN (SELECT id FROM gone)),
f AS (DELETE FROM romancy.misfits WHERE instance IN (SELECT id FROM gone)),
a AS (DELETE FROM romancy.attempts WHERE instance IN (SELECT id FROM gone)),
w AS (DELETE FROM romancy.waits WHERE instance IN (SELECT id FROM gone)),
k AS (DELETE FROM romancy.wait_keys WHERE instance IN (SELECT id FROM gone)),
d AS (DELETE FROM romancy.deliveries WHERE instance IN (SELECT id FROM gone)),
r AS (DELETE FROM romancy.requests WHERE instance IN (SELECT id FROM gone)),
u AS (DELETE FROM romancy.unlooked WHERE instance IN (SELECT id FROM gone))
DELETE FROM romancy.instances i WHERE i.id IN (SELECT id FROM gone) RETURNING i.id
-- name: forget_expired_data
UPDATE romancy.events e SET data = NULL WHERE expires_at < :at::bigint AND data IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM romancy.deliveries d WHERE d.event = e.seq)
  AND NOT EXISTS (SELECT 1 FROM romancy.undispatched u WHERE u.event = e.seq)
-- name: prunable_events
SELECT seq FROM romancy.events e WHERE accepted_at < :before::bigint
  AND (expires_at IS NULL OR expires_at < :at::bigint)
  AND NOT EXISTS (SELECT 1 FROM romancy.deliveries d WHERE d.event = e.seq)
  AND NOT EXISTS (SELECT 1 FROM romancy.undispatched u WHERE u.event = e.seq)
ORDER BY accepted_at LIMIT :limit::integer
-- name: prune_events
WITH old AS MATERIALIZED (SELECT seq FROM romancy.events WHERE seq = ANY(:seqs::bigint[])
  ORDER BY seq FOR UPDATE SKIP LOCKED),
gone AS (DELETE FROM romancy.events e WHERE e.seq IN (SELECT seq FROM old)
  AND NOT EXISTS (SELECT 1 FROM romancy.deliveries d WHERE d.event = e.seq) RETURNING e.seq),
k AS (DELETE FROM romancy.event_keys WHERE seq IN (SELECT seq FROM gone)),
c AS (DELETE FROM romancy.consumed WHERE event IN (SELECT seq FROM gone))
SELECT seq FROM gone

-- === reads ===

-- Deliveries have no payload; both in one go, because somebody waits for them.
-- name: mail
(SELECT d.instance, d.event AS number, NULL::smallint AS kind, NULL::bytea AS payload FROM romancy.deliveries d
  CROSS JOIN LATERAL (SELECT 1 FROM romancy.instances i
    WHERE i.id = d.instance AND i.owner = :worker::text AND i.status < 9 OFFSET 0) i
  ORDER BY d.event LIMIT :limit::integer)
UNION ALL
(SELECT r.instance, r.id, r.kind, r.payload FROM romancy.requests r
  CROSS JOIN LATERAL (SELECT 1 FROM romancy.instances i
    WHERE i.id = r.instance AND i.owner = :worker AND i.status < 9 OFFSET 0) i
  ORDER BY r.id LIMIT :limit)
-- name: due_waits
SELECT w.due_at, w.instance, w.op FROM romancy.waits w CROSS JOIN LATERAL (SELECT 1 FROM romancy.instances i
  WHERE i.id = w.instance AND i.owner = :worker::text AND i.status < 9 OFFSET 0) i
WHERE w.due_at <= :before::bigint ORDER BY w.due_at LIMIT :limit::integer
-- name: due_retries
SELECT a.next_due, a.instance, a.op FROM romancy.attempts a CROSS JOIN LATERAL (SELECT 1 FROM romancy.instances i
  WHERE i.id = a.instance AND i.owner = :worker::text AND i.status < 9 OFFSET 0) i
WHERE a.next_due <= :before::bigint ORDER BY a.next_due LIMIT :limit::integer
-- Those with a retry need not be in memory before it falls due.
-- name: restless_of_worker
SELECT id FROM romancy.instances i WHERE owner = :worker::text AND status = 1
  AND NOT EXISTS (SELECT 1 FROM romancy.attempts a WHERE a.instance = i.id AND a.next_due IS NOT NULL OFFSET 0)
UNION ALL SELECT i.id FROM romancy.unlooked l CROSS JOIN LATERAL (SELECT i.id FROM romancy.instances i
  WHERE i.id = l.instance AND i.owner = :worker::text AND i.status BETWEEN 2 AND 8 OFFSET 0) i
-- name: worker
SELECT id, host, until, started_at FROM romancy.workers WHERE id = :worker::text
-- name: misfits_of_instance
SELECT event, op, error FROM romancy.misfits WHERE instance = :instance::text ORDER BY event LIMIT 100

-- name: instance
SELECT id, workflow, status, owner, version, input, input_kind, output, error, deadline, description, created_at,
  updated_at, finished_at FROM romancy.instances WHERE id = :id::text
-- name: known_instances
SELECT id FROM romancy.instances WHERE id = ANY(:ids::text[])
-- name: finished_instances
SELECT id, workflow, status, owner, version, input, input_kind, output, error, deadline, description, created_at,
  updated_at, finished_at FROM romancy.instances WHERE id = ANY(:ids::text[]) AND status >= 9
-- name: instances
SELECT id, workflow, status, owner, version, input, input_kind, output, error, deadline, description, created_at,
  updated_at, finished_at FROM romancy.instances {where} ORDER BY created_at DESC, id DESC LIMIT :limit::integer
-- name: history
SELECT n, kind, op, at, input, payload, event FROM romancy.history WHERE instance = :instance::text ORDER BY n
-- Everything of some instances in one snapshot; what the columns hold depends on `part`.
-- name: load
SELECT 1 AS part, instance, n AS a, kind::bigint AS b, at AS c, event AS d, op AS text, input AS x, payload AS y,
  NULL::integer AS e, NULL::boolean AS f FROM romancy.history WHERE instance = ANY(:ids::text[])
UNION ALL SELECT 2, instance, due_at, NULL, NULL, NULL, op, NULL, NULL, NULL, NULL FROM romancy.waits
  WHERE instance = ANY(:ids)
UNION ALL SELECT 3, instance, n, first_at, next_due, NULL, op, error, progress, crashes, started FROM romancy.attempts
  WHERE instance = ANY(:ids)
UNION ALL SELECT 8, instance, suspected_at, tried, tried_alone, run, op, convert_to(culprit, 'UTF8'), NULL, alone,
  is_alone FROM romancy.attempts WHERE instance = ANY(:ids) AND suspected_at IS NOT NULL
UNION ALL SELECT 4, instance, id, kind, NULL, NULL, NULL, payload, NULL, NULL, NULL FROM romancy.requests
  WHERE instance = ANY(:ids)
UNION ALL SELECT 5, instance, event, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM romancy.deliveries
  WHERE instance = ANY(:ids)
UNION ALL SELECT 0, id, version, created_at, updated_at, finished_at, workflow, input, output, status, NULL
  FROM romancy.instances WHERE id = ANY(:ids)
UNION ALL SELECT 6, id, deadline, input_kind, NULL, NULL, owner, error, NULL, NULL, NULL
  FROM romancy.instances WHERE id = ANY(:ids)
UNION ALL SELECT 7, id, NULL, NULL, NULL, NULL, description, NULL, NULL, NULL, NULL
  FROM romancy.instances WHERE id = ANY(:ids) AND description IS NOT NULL
ORDER BY part, instance, a, text
-- By id, however many are finished beside it: a planner that reads both in order would read all of those first.
-- name: waits
SELECT instance, workflow, op, kind, spec, created_at, due_at, location, error FROM (
  (SELECT w.instance, i.workflow, w.op, CASE WHEN w.spec = '' THEN 'timer' ELSE 'event' END AS kind, w.spec,
    w.created_at, w.due_at, w.location, NULL::bytea AS error
  FROM romancy.waits w CROSS JOIN LATERAL (SELECT workflow FROM romancy.instances WHERE id = w.instance OFFSET 0) i {waits}
  ORDER BY w.instance, w.op LIMIT :limit::integer)
  UNION ALL
  (SELECT a.instance, i.workflow, a.op, 'retry', ''::bytea, a.first_at, a.next_due, '', a.error
  FROM romancy.attempts a
  CROSS JOIN LATERAL (SELECT workflow FROM romancy.instances WHERE id = a.instance OFFSET 0) i {attempts}
  ORDER BY a.instance, a.op LIMIT :limit)
) x ORDER BY instance, op LIMIT :limit
-- name: listed_events
SELECT e.seq, e.source, e.id, e.type, e.subject, e.time, e.target, e.attrs, e.data, e.accepted_at, e.expires_at,
  e.differed_at
FROM romancy.events e {where} ORDER BY e.seq DESC LIMIT :limit::integer
-- name: receivers
SELECT x.seq, c.instance, c.op FROM unnest(:seqs::bigint[]) AS x(seq) CROSS JOIN LATERAL
  (SELECT instance, op FROM romancy.consumed WHERE event = x.seq ORDER BY instance LIMIT 100) c
-- name: notify
SELECT set_config('synchronous_commit', 'off', true), pg_notify(x.channel, :sender::text)
FROM unnest(:channels::text[]) AS x(channel)

-- The viewer's sessions. One more makes room: those whose time is over go, and the oldest of too many.
-- name: insert_session
WITH gone AS (DELETE FROM romancy.sessions WHERE until <= :now::bigint
    OR key IN (SELECT key FROM romancy.sessions ORDER BY until DESC, key OFFSET :most::integer - 1))
INSERT INTO romancy.sessions (key, proof, until) VALUES (:key::bytea, :proof::bytea, :until::bigint)
-- name: session
SELECT proof, until FROM romancy.sessions WHERE key = :key::bytea
-- name: delete_session
DELETE FROM romancy.sessions WHERE key = :key::bytea
