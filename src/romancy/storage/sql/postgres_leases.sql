-- Workers, claims, pruning and reads of PostgreSQL; see the top of postgres.sql.

-- === workers and claims; :now is null except in tests, to use the database's clock ===

-- A control character, which no event's type contains: a trigger whose type begins with it says that workers have taken
-- the rest of the type back from the workflow, which has its bare name here. See `TAKEN_BACK` in storage/protocol.py.
-- part: taken_back
chr(31)
-- Replaces the triggers of every version of these workflows, which are given by their bare names, and keeps what is taken
-- back.
-- name: announce
WITH wanted AS MATERIALIZED (SELECT * FROM unnest(:types::text[], :names::text[], :timeouts::bigint[])
    AS x(type, workflow, timeout)),
stored AS MATERIALIZED (SELECT type, workflow, timeout FROM wanted
  UNION SELECT {taken_back} || o.type, o.workflow, NULL FROM (SELECT ltrim(type, {taken_back}) AS type,
      regexp_replace(workflow, {version}, '') AS workflow FROM romancy.triggers) o
  WHERE o.workflow = ANY(:workflows::text[]) AND NOT EXISTS (SELECT 1 FROM wanted w WHERE w.type = o.type
    AND regexp_replace(w.workflow, {version}, '') = o.workflow)),
gone AS (DELETE FROM romancy.triggers t WHERE regexp_replace(t.workflow, {version}, '') = ANY(:workflows)
  AND NOT EXISTS (SELECT 1 FROM stored s WHERE s.type = t.type AND s.workflow = t.workflow) AND {outdated} IS NULL)
INSERT INTO romancy.triggers (type, workflow, timeout) SELECT type, workflow, timeout FROM stored
WHERE {outdated} IS NULL ORDER BY 1, 2
ON CONFLICT (type, workflow) DO UPDATE SET timeout = excluded.timeout
WHERE triggers.timeout IS DISTINCT FROM excluded.timeout
-- Of two versions that are proposed at the same moment, both may be stored: the higher one counts.
-- name: propose
INSERT INTO romancy.triggers (type, workflow, timeout) SELECT x.type, x.workflow, x.timeout
FROM unnest(:types::text[], :names::text[], :timeouts::bigint[]) AS x(type, workflow, timeout)
WHERE {outdated} IS NULL AND NOT EXISTS (SELECT 1 FROM romancy.triggers t
  WHERE t.type IN (x.type, {taken_back} || x.type)
  AND regexp_replace(t.workflow, {version}, '') = regexp_replace(x.workflow, {version}, ''))
ORDER BY 1, 2 ON CONFLICT DO NOTHING
-- Differs: uses the server's clock.
-- name: insert_worker
INSERT INTO romancy.workers (id, host, until, started_at, has_session, about, load)
SELECT :worker::text, :host::text, now + :lease::bigint, now, :session::boolean, :about::text, 0 FROM {now}
RETURNING started_at AS now, {readers}, {locked}
-- Differs: uses the server's clock.
-- name: renew_worker
UPDATE romancy.workers SET until = now + :lease::bigint, has_session = :session::boolean, load = :load::integer,
  about = coalesce(:about::text, about) FROM {now}
WHERE id = :worker::text RETURNING now, {readers}, {locked}
-- Others see by this lock that the session is there. It is never released, and may be taken again and again.
-- part: locked
CASE WHEN :key::bigint IS NOT NULL THEN pg_try_advisory_lock_shared(:key) END AS locked
-- part: readers
(SELECT version FROM romancy.schema_info) AS version, (SELECT min_reader FROM romancy.schema_info) AS min_reader
-- `cut_off`: no sign of life since the server started or since we had trouble reaching it, so it may have trouble, too.
-- name: other_workers
SELECT id, until < now AS ended, has_session, until - :lease::bigint <= greatest(now - :trouble::bigint,
  (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint) AS cut_off
FROM romancy.workers, {now} WHERE id <> :worker::text
-- name: with_session
SELECT id FROM romancy.workers WHERE id = ANY(:workers::text[]) AND has_session
-- name: session_locks
SELECT classid::bigint AS high, objid::bigint AS low FROM pg_locks
WHERE locktype = 'advisory' AND objsubid = 1 AND granted
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
-- A later statement reads its instances: this one waits for running commits, and can't see them. A worker whose session
-- is gone died when that was first noticed, `missed` microseconds ago, if we were running when it last renewed its
-- lease. Otherwise it may have died long ago, and we know only its last sign of life, such as the record that a suspect
-- started or is still running.
-- name: bury
WITH gone AS (DELETE FROM romancy.workers w USING unnest(:workers::text[], :clean::boolean[], :missed::bigint[])
    AS x(id, clean, missed), {now}
  WHERE w.id = x.id AND (w.until < now OR w.id = ANY(:lost::text[]))
  RETURNING w.id, x.clean OR w.leaving AS clean, now, w.started_at AS since,
    CASE WHEN w.id = ANY(:lost) AND (SELECT started_at FROM romancy.workers m WHERE m.id = :by::text) <= w.until - :lease::bigint
      THEN now - x.missed ELSE greatest(w.until - :lease, (SELECT max(i.updated_at) FROM romancy.instances i
        WHERE i.owner = w.id AND {has_work})) END AS seen),
dead AS (INSERT INTO romancy.deaths (worker, since, at)
  SELECT id, since, greatest(since, least(seen, now)) FROM gone WHERE NOT clean ON CONFLICT DO NOTHING)
INSERT INTO romancy.orphans (id, at, clean) SELECT id, now, clean FROM gone ON CONFLICT DO NOTHING RETURNING id
-- name: count_of_worker
SELECT count(*) FROM (SELECT 1 FROM romancy.instances i WHERE i.owner = :worker::text AND i.status < 9
  ORDER BY i.status, i.id LIMIT :most::integer) x
-- part: now
(SELECT coalesce(:now::bigint, {time}) AS now) AS clock
-- part: time
(extract(epoch FROM clock_timestamp()) * 1000000)::bigint
-- Identifies the database and its server.
-- name: place
SELECT datname AS name, oid::bigint AS oid, pg_postmaster_start_time() AS since FROM pg_database
WHERE datname = current_database()
-- name: tell_time
SELECT {time} AS now
-- How many transaction numbers this server is behind those that are stored; at most 0, unless they are another server's.
-- name: missing_numbers
SELECT greatest((SELECT e.xid::text::bigint + 1 FROM romancy.events e ORDER BY e.seq DESC LIMIT 1),
  (SELECT pg_snapshot_xmax(i.born)::text::bigint FROM romancy.instances i ORDER BY i.created_at DESC, i.id DESC LIMIT 1), 0)
  - pg_snapshot_xmax(pg_current_snapshot())::text::bigint

-- Only reads, so that a sweep that finds nothing writes nothing. ORDER BY makes it use the index, even if the planner
-- expects many matching rows.
-- name: is_claimable
SELECT EXISTS (SELECT 1 FROM unnest(:workflows::text[]) AS w(name) CROSS JOIN LATERAL
    (SELECT 1 FROM romancy.instances i WHERE i.owner IS NULL AND {has_work} AND i.workflow = w.name
     ORDER BY i.status, i.id LIMIT 1) i)
  OR EXISTS (SELECT 1 FROM romancy.orphans o CROSS JOIN LATERAL (SELECT 1 FROM romancy.instances i
      WHERE i.owner = o.id AND {has_work} AND i.workflow = ANY(:workflows) ORDER BY i.status, i.id LIMIT 1) i)
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
-- Differs: lists are arrays.
-- part: claimable
i.status < 9 AND i.status <> 8 AND i.workflow = ANY(:workflows::text[])
  AND (i.owner IS NULL OR EXISTS (SELECT 1 FROM romancy.orphans o WHERE o.id = i.owner))
-- Rows that other workers have locked are skipped. Running instances are claimed by workflow, each with its share.
-- Differs: found and claimed in one statement, skipping locked rows.
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
  (SELECT i.id FROM romancy.instances i WHERE i.owner IS NULL AND {has_work} AND i.workflow = w.name
   ORDER BY i.status, i.id LIMIT :share::integer FOR NO KEY UPDATE SKIP LOCKED) i),
orphaned AS MATERIALIZED (SELECT i.id FROM romancy.orphans o CROSS JOIN LATERAL
  (SELECT i.id FROM romancy.instances i WHERE i.owner = o.id AND {has_work} AND i.workflow = ANY(:workflows)
   ORDER BY i.status, i.id LIMIT :limit FOR NO KEY UPDATE SKIP LOCKED) i LIMIT :limit),
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
-- Instances that are blocked because some builds of their code did not follow their history: a page of them, in order.
-- Differs: all workflows in one statement.
-- name: unfit
SELECT i.workflow, i.id, i.builds FROM unnest(:workflows::text[]) AS w(name) CROSS JOIN LATERAL
  (SELECT i.workflow, i.id, i.builds FROM romancy.instances i WHERE i.status = 9 AND i.builds IS NOT NULL
     AND i.workflow = w.name AND (i.workflow, i.id) > (:after_workflow::text, :after_id::text)
   ORDER BY i.workflow, i.id LIMIT :limit::integer) i ORDER BY i.workflow, i.id LIMIT :limit
-- Only those that no other worker has taken, resumed or cancelled meanwhile.
-- Differs: several in one statement, skipping locked rows.
-- name: claim_unfit
WITH fence AS MATERIALIZED (SELECT id FROM romancy.workers WHERE id = :worker::text FOR KEY SHARE),
free AS MATERIALIZED (SELECT i.id FROM unnest(:ids::text[], :builds::text[]) AS x(id, builds) CROSS JOIN LATERAL
  (SELECT i.id FROM romancy.instances i WHERE i.id = x.id AND coalesce(i.status, 0) = 9 AND i.builds = x.builds
   FOR NO KEY UPDATE SKIP LOCKED) i)
UPDATE romancy.instances i SET status = 1, owner = fence.id, version = i.version + 1, error = NULL FROM free f, fence
WHERE i.id = f.id RETURNING i.id

-- === queues ===

-- Differs: the planner chooses the index.
-- part: by_queue

-- Differs: the planner chooses the index.
-- part: by_slot

-- Differs: the name of the function.
-- part: ids_as_json
json_agg(y.id)::text
-- One statement. An admission that came before it has changed the version, so this one does nothing. Instances that are
-- being cancelled are skipped. The time limit runs from now on.
-- Differs: one statement, because each statement is a transaction.
-- name: admit
WITH fence AS MATERIALIZED (SELECT id FROM romancy.workers WHERE id = :worker::text FOR KEY SHARE),
turned AS MATERIALIZED (UPDATE romancy.queues q SET version = q.version + 1, turn = :turn::text, reserved = :reserved::bigint
  FROM fence WHERE q.name = :queue::text AND q.version = :version::bigint RETURNING q.name),
keys AS (INSERT INTO romancy.queue_keys (queue, key, reserved) SELECT t.name, x.key, x.reserved
  FROM turned t, unnest(:keys::text[], :reservations::bigint[]) AS x(key, reserved) ORDER BY x.key
  ON CONFLICT (queue, key) DO UPDATE SET reserved = excluded.reserved),
next AS MATERIALIZED (SELECT i.id FROM turned, unnest(:ids::text[]) AS x(id) CROSS JOIN LATERAL
  (SELECT i.id FROM romancy.instances i WHERE i.id = x.id AND coalesce(i.status, 0) = 8
   FOR NO KEY UPDATE SKIP LOCKED) i),
admitted AS (UPDATE romancy.instances i SET status = 1, version = i.version + 1, updated_at = :at::bigint,
    owner = CASE WHEN i.workflow = ANY(:workflows::text[]) THEN :worker END, limited_from = :at,
    deadline = :at + i.deadline - coalesce(i.limited_from, i.began_at, i.created_at), began_at = {begun}
  FROM next n WHERE i.id = n.id RETURNING i.id, i.workflow, i.owner)
SELECT t.name, a.id, a.workflow, a.owner FROM turned t LEFT JOIN admitted a ON true

-- === balancing: how many each worker owns, which can leave, which are free; statuses 2 and 3 only wait ===

-- Differs: one statement, with the server's clock.
-- name: shares
SELECT w.id, o.n FROM romancy.workers w CROSS JOIN {now} CROSS JOIN LATERAL (SELECT count(*) AS n FROM (
    SELECT 1 FROM romancy.instances i WHERE i.owner = w.id AND i.status < 9 ORDER BY i.status, i.id
    LIMIT :most::integer) x) o
WHERE w.until >= now AND (SELECT count(*) FROM romancy.workers) > 1
UNION ALL SELECT NULL, count(*) FROM (SELECT 1 FROM unnest(:workflows::text[]) AS w(name) CROSS JOIN LATERAL
    (SELECT 1 FROM romancy.instances i WHERE i.owner IS NULL AND {only_waits}
       AND i.workflow = w.name ORDER BY i.status, i.id LIMIT :limit::integer) i
  WHERE (SELECT count(*) FROM romancy.workers) > 1 LIMIT :limit) free
-- Differs: a look can be due; OFFSET 0 keeps the lookups by id separate.
-- name: idle_of_worker
SELECT i.id, i.version, i.status FROM romancy.instances i
WHERE i.owner = :worker::text AND {only_waits}
  AND NOT EXISTS (SELECT 1 FROM romancy.waits w WHERE w.instance = i.id AND w.due_at <= :due::bigint OFFSET 0)
  AND NOT EXISTS (SELECT 1 FROM romancy.deliveries d WHERE d.instance = i.id OFFSET 0)
  AND NOT EXISTS (SELECT 1 FROM romancy.requests r WHERE r.instance = i.id OFFSET 0)
  AND NOT EXISTS (SELECT 1 FROM romancy.unlooked l WHERE l.instance = i.id OFFSET 0)
ORDER BY i.status, i.id LIMIT :limit::integer
-- Instances with a look due are claimed by `claim` instead, and then look.
-- name: claim_idle
WITH fence AS MATERIALIZED (SELECT id FROM romancy.workers WHERE id = :worker::text FOR KEY SHARE),
free AS MATERIALIZED (SELECT i.id FROM unnest(:workflows::text[]) AS w(name) CROSS JOIN LATERAL
  (SELECT i.id FROM romancy.instances i WHERE i.owner IS NULL AND {only_waits}
     AND i.workflow = w.name AND NOT EXISTS (SELECT 1 FROM romancy.unlooked l WHERE l.instance = i.id OFFSET 0)
   ORDER BY i.status, i.id LIMIT :limit::integer FOR NO KEY UPDATE OF i SKIP LOCKED) i LIMIT :limit)
UPDATE romancy.instances i SET owner = fence.id, version = i.version + 1 FROM free f, fence WHERE i.id = f.id
RETURNING i.id

-- A hint or a request can arrive just after its instance ended, if its writer still saw the instance running.
-- name: delete_spent_mail
WITH d AS (DELETE FROM romancy.deliveries d USING romancy.deliveries x CROSS JOIN LATERAL
    (SELECT 1 FROM romancy.instances i WHERE i.id = x.instance AND i.status >= 10 OFFSET 0) i
  WHERE d.instance = x.instance AND d.event = x.event)
DELETE FROM romancy.requests r USING romancy.requests x CROSS JOIN LATERAL
  (SELECT 1 FROM romancy.instances i WHERE i.id = x.instance AND i.status >= 10 OFFSET 0) i
WHERE r.id = x.id
-- Checked again under the lock: another worker may have pruned it meanwhile, and its id may belong to a new instance.
-- Instances that another worker is pruning are skipped. Without `coalesce` the planner may prefer the index of
-- `finished_at` to the ids.
-- name: prune_instances
WITH gone AS MATERIALIZED (SELECT id FROM romancy.instances WHERE id = ANY(:ids::text[]) AND status >= 10
  AND coalesce(finished_at, 9223372036854775807) < CASE status WHEN 11 THEN :failed::bigint ELSE :before::bigint END
  AND NOT EXISTS (SELECT 1 FROM romancy.emissions e WHERE e.instance = id OFFSET 0)
  ORDER BY id FOR UPDATE SKIP LOCKED),
h AS (DELETE FROM romancy.history WHERE instance IN (SELECT id FROM gone)),
c AS (DELETE FROM romancy.consumed WHERE instance IN (SELECT id FROM gone)),
m AS (DELETE FROM romancy.marks WHERE instance IN (SELECT id FROM gone)),
f AS (DELETE FROM romancy.misfits WHERE instance IN (SELECT id FROM gone)),
a AS (DELETE FROM romancy.attempts WHERE instance IN (SELECT id FROM gone)),
w AS (DELETE FROM romancy.waits WHERE instance IN (SELECT id FROM gone)),
k AS (DELETE FROM romancy.wait_keys WHERE instance IN (SELECT id FROM gone)),
d AS (DELETE FROM romancy.deliveries WHERE instance IN (SELECT id FROM gone)),
r AS (DELETE FROM romancy.requests WHERE instance IN (SELECT id FROM gone)),
u AS (DELETE FROM romancy.unlooked WHERE instance IN (SELECT id FROM gone)),
v AS (DELETE FROM romancy.views WHERE instance IN (SELECT id FROM gone)),
t AS (DELETE FROM romancy.attributes WHERE instance IN (SELECT id FROM gone)),
s AS (DELETE FROM romancy.acts WHERE instance IN (SELECT id FROM gone)),
l AS (DELETE FROM romancy.headers WHERE instance IN (SELECT id FROM gone)),
p AS (UPDATE romancy.instances i SET parent_op = NULL WHERE i.parent = ANY(:ids) AND i.parent IN (SELECT id FROM gone)
  AND i.id <> ALL(:ids))
DELETE FROM romancy.instances i WHERE i.id IN (SELECT id FROM gone) RETURNING i.id
-- Differs: events can be left undispatched. Without the limit and the array the planner, which does not know the time,
-- takes a third of all events for expired, and reads the whole table.
-- name: forget_expired_data
UPDATE romancy.events SET data = NULL WHERE seq = ANY(ARRAY(SELECT e.seq FROM romancy.events e
  WHERE e.expires_at < :at::bigint AND e.data IS NOT NULL AND {handled} ORDER BY e.expires_at
  LIMIT 10000))
-- None is deleted if there are other interests than those that are given.
-- name: prune_events
WITH old AS MATERIALIZED (SELECT seq FROM romancy.events WHERE seq = ANY(:seqs::bigint[])
    AND (:workflows::text[] IS NULL OR NOT EXISTS (SELECT workflow, type, next, kind FROM romancy.interests
      EXCEPT SELECT * FROM unnest(:workflows, :types::text[], :nexts::text[], :kinds::smallint[])))
  ORDER BY seq FOR UPDATE SKIP LOCKED),
gone AS (DELETE FROM romancy.events e WHERE e.seq IN (SELECT seq FROM old)
  AND NOT EXISTS (SELECT 1 FROM romancy.deliveries d WHERE d.event = e.seq) RETURNING e.seq),
k AS (DELETE FROM romancy.event_keys WHERE seq IN (SELECT seq FROM gone)),
c AS (DELETE FROM romancy.consumed WHERE event IN (SELECT seq FROM gone))
SELECT seq FROM gone

-- === reads ===

-- Deliveries have no payload. One statement reads both, because a caller waits for them.
-- Differs: LATERAL, so that the planner looks up by id.
-- name: mail
(SELECT d.instance, d.event, NULL::smallint AS kind, NULL::bytea AS payload, NULL::text AS op FROM romancy.deliveries d
  CROSS JOIN LATERAL (SELECT 1 FROM romancy.instances i
    WHERE i.id = d.instance AND i.owner = :worker::text AND i.status < 9 OFFSET 0) i
  WHERE (d.event, d.instance) > (:event::bigint, :instance::text) ORDER BY d.event, d.instance LIMIT :limit::integer)
UNION ALL
(SELECT r.instance, r.id, r.kind, r.payload, r.op FROM romancy.requests r
  CROSS JOIN LATERAL (SELECT 1 FROM romancy.instances i
    WHERE i.id = r.instance AND i.owner = :worker AND i.status < 9 OFFSET 0) i
  WHERE r.id > :request::bigint ORDER BY r.id LIMIT :limit)
-- Differs: LATERAL, so that the planner looks up by id.
-- name: due_waits
SELECT w.due_at, w.instance, w.op FROM romancy.waits w CROSS JOIN LATERAL (SELECT 1 FROM romancy.instances i
  WHERE i.id = w.instance AND i.owner = :worker::text AND i.status < 9 OFFSET 0) i
WHERE w.due_at <= :before::bigint ORDER BY w.due_at LIMIT :limit::integer
-- Differs: LATERAL, so that the planner looks up by id.
-- name: due_retries
SELECT a.next_due, a.instance, a.op FROM romancy.attempts a CROSS JOIN LATERAL (SELECT 1 FROM romancy.instances i
  WHERE i.id = a.instance AND i.owner = :worker::text AND i.status < 9 OFFSET 0) i
WHERE a.next_due <= :before::bigint ORDER BY a.next_due LIMIT :limit::integer
-- Instances with a retry need not be in memory before it falls due.
-- Differs: a look can be due.
-- name: restless_of_worker
SELECT id FROM romancy.instances i WHERE i.owner = :worker::text AND {has_work}
  AND NOT EXISTS (SELECT 1 FROM romancy.attempts a WHERE a.instance = i.id AND a.next_due IS NOT NULL OFFSET 0)
UNION ALL SELECT i.id FROM romancy.unlooked l CROSS JOIN LATERAL (SELECT i.id FROM romancy.instances i
  WHERE i.id = l.instance AND i.owner = :worker::text AND {only_waits} OFFSET 0) i

-- Everything about some instances in one snapshot, part by part; `names` and `numbers` hold the other columns of a
-- part. For an instance, `n` is the length of its history; no entries are read if it has more than :most.
-- name: load
SELECT 'entry' AS part, instance, n, kind, op, at, input, payload, event, NULL::bigint AS due, NULL::bytea AS error,
  NULL::text[] AS names, NULL::bigint[] AS numbers
  FROM (SELECT h.* FROM romancy.instances i CROSS JOIN LATERAL
    (SELECT * FROM romancy.history h WHERE h.instance = i.id AND h.n > i.base OFFSET 0) h
    WHERE i.id = ANY(:ids::text[]) AND {length} <= :most::bigint) h
UNION ALL SELECT 'wait', instance, NULL, NULL, op, NULL, spec, NULL, NULL, due_at, NULL, ARRAY[model],
  ARRAY[(born IS NOT NULL OR since IS NOT NULL)::integer] FROM romancy.waits WHERE instance = ANY(:ids)
UNION ALL SELECT 'attempt', instance, n, NULL, op, first_at, NULL, progress, NULL, next_due, error, ARRAY[culprit],
  ARRAY[crashes, started::integer, suspected_at, tried, tried_alone, alone, run, is_alone::integer]
  FROM romancy.attempts WHERE instance = ANY(:ids)
UNION ALL SELECT 'request', instance, id, kind, op, NULL, NULL, payload, NULL, NULL, NULL, NULL, NULL
  FROM romancy.requests WHERE instance = ANY(:ids)
UNION ALL SELECT 'delivery', instance, NULL, NULL, NULL, NULL, NULL, NULL, event, NULL, NULL, NULL, NULL
  FROM romancy.deliveries WHERE instance = ANY(:ids)
UNION ALL SELECT 'headers', instance, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, ARRAY[headers], NULL
  FROM romancy.headers WHERE instance = ANY(:ids)
UNION ALL SELECT 'instance', id, {length}, NULL, NULL, NULL, input, output, NULL, deadline, error,
  ARRAY[{row_names}], ARRAY[{row_numbers}]
  FROM romancy.instances i WHERE id = ANY(:ids)
ORDER BY instance, n, op, event
-- part: length
(SELECT coalesce(max(h.n) - i.base, 0) FROM romancy.history h WHERE h.instance = i.id)
-- part: row_names
workflow, owner, description, schedule, parent, parent_op, builds, seed, queue, queue_key
-- part: row_numbers
status, version, input_kind, created_at, updated_at, finished_at, generation, base, began_at, limited_from,
  scheduled_at, priority
-- Differs: LATERAL limits the rows of each.
-- name: receivers
SELECT x.seq, c.instance, c.op FROM unnest(:seqs::bigint[]) AS x(seq) CROSS JOIN LATERAL
  (SELECT instance, op FROM romancy.consumed WHERE event = x.seq ORDER BY instance LIMIT 100) c
-- name: notify
SELECT set_config('synchronous_commit', 'off', true), pg_notify(x.channel, :sender::text)
FROM unnest(:channels::text[]) AS x(channel)

-- === parts of common.sql, and reads for people ===

-- Differs: the syntax of a bytes literal.
-- part: no_bytes
''::bytea
-- Differs: lists are arrays.
-- part: listed
unnest(:listed::text[]) WITH ORDINALITY AS x(value, n)
-- Differs: lists are arrays.
-- part: codes
unnest(:codes::smallint[]) AS x(value)
-- Differs: PostgreSQL finds the right index by itself.
-- part: by_creation
-- Differs: PostgreSQL finds the right index by itself.
-- part: by_status
-- Differs: PostgreSQL finds the right index by itself.
-- part: by_parent
-- Differs: LATERAL keeps the planner from reading all instances in order.
-- part: by_attribute
romancy.attributes t CROSS JOIN LATERAL (SELECT * FROM romancy.instances i WHERE i.id = t.instance OFFSET 0) i
-- Differs: lists are arrays.
-- part: has_attributes
(:pairs::text[] IS NULL OR :wanted::bigint = (SELECT count(*) FROM romancy.attributes a WHERE a.instance = i.id
    AND a.name || '=' || a.value = ANY(:pairs)))
  AND (:absent::text[] IS NULL OR 0 = (SELECT count(*) FROM romancy.attributes a WHERE a.instance = i.id
    AND a.name = ANY(:absent)))
-- Differs: how bytes are written.
-- The first byte of a sealed value, in which nothing is looked for. No text begins with it.
-- part: sealed
'\x00'::bytea
-- Differs: how to search in bytes.
-- Letters of ASCII fit in either case: bytes above them are escaped. The text that is looked for is in lower case.
-- part: has_text
(:text::bytea IS NULL OR position(encode(:text, 'escape') IN lower(encode(convert_to(i.id, 'UTF8'), 'escape'))) > 0
  OR (substr(i.input, 1, 1) <> {sealed} AND position(encode(:text, 'escape') IN lower(encode(i.input, 'escape'))) > 0)
  OR (substr(i.error, 1, 1) <> {sealed} AND position(encode(:text, 'escape') IN lower(encode(i.error, 'escape'))) > 0)
  OR (substr(i.output, 1, 1) <> {sealed} AND position(encode(:text, 'escape') IN lower(encode(i.output, 'escape'))) > 0))
-- Differs: how to search in bytes.
-- part: event_has_text
(:text::bytea IS NULL OR position(encode(:text, 'escape') IN
    lower(encode(convert_to(concat_ws(' ', e.type, e.source, e.id, e.subject), 'UTF8'), 'escape'))) > 0
  OR (substr(e.data, 1, 1) <> {sealed} AND position(encode(:text, 'escape') IN lower(encode(e.data, 'escape'))) > 0))
-- Differs: LATERAL limits the rows of each.
-- name: few_waits
SELECT y.* FROM {listed} CROSS JOIN LATERAL (
  (SELECT {wait} FROM romancy.waits w WHERE w.instance = x.value LIMIT :each::integer)
  UNION ALL
  (SELECT {retry} FROM romancy.attempts a WHERE a.instance = x.value AND a.next_due IS NOT NULL LIMIT :each)) y
ORDER BY x.n
