-- PostgreSQL's writes, and what follows a write; the other statements are in postgres_leases.sql.
-- Each statement is a transaction of its own (autocommit, READ COMMITTED): no lock is held while a client is working.
--
-- Write, commit, look. The writer of a wait or an event looks for the other kind after its own commit, with the fresh
-- snapshot of a later statement. Let Cw and Ce be the moments when a wait and an event become visible, and Lw > Cw and
-- Le > Ce their looks: if Cw < Ce, Le sees the wait, else Lw sees the event. A lock in the writing statement is not
-- enough: its snapshot is older than the lock. `undispatched` (a sweep repeats it) and `unlooked` (a new owner looks)
-- cover a crash between commit and look. If both looks find the pair, the owner deduplicates by `consumed`.
--
-- Only the owner updates an instance, deletes its waits, writes its history and marks what it consumed; all others only
-- add events, deliveries and requests. A commit holds KEY SHARE on its worker's row. A takeover deletes that row, so it
-- waits for running commits, and later ones find no row. Claiming is a later statement, which sees all of them.

-- A migration can exclude older libraries. A writer without a worker's row checks this in the same statement, and the
-- whole statement then fails: it casts a message to a number, and `Connections.explain` recognizes the message. Writers
-- that wait for the migration's locks take their snapshot afterwards, and see the migration.
-- Differs: each statement is a transaction.
-- part: outdated
(SELECT ('outdated by schema version ' || version || ', knows {reader}')::integer FROM romancy.schema_info
  WHERE min_reader > {reader})
-- The part of a stored name that is not the bare name of the workflow; see core/versions.py.
-- part: version
'@[1-9][0-9]*$'

-- === the group commit: one statement, composed of the pieces a batch needs ===

-- part: write_fence
fence AS MATERIALIZED (SELECT id FROM romancy.workers WHERE id = :worker::text FOR KEY SHARE)
-- part: write_starts
started AS (INSERT INTO romancy.instances
  (id, workflow, status, owner, token, birth, born, input, input_kind, deadline, created_at, updated_at)
  SELECT x.id, x.workflow, 1, CASE WHEN x.mine THEN (SELECT id FROM fence) END, :token::bytea, :token,
    coalesce(x.born::pg_snapshot, pg_current_snapshot()), x.input, x.kind, x.deadline, x.at, x.at
  FROM unnest(:start_ids::text[], :start_workflows::text[], :start_inputs::bytea[], :start_kinds::smallint[],
    :start_deadlines::bigint[], :start_ats::bigint[], :start_mine::boolean[], :start_borns::text[])
    AS x(id, workflow, input, kind, deadline, at, mine, born)
  {startable} ORDER BY x.id ON CONFLICT (id) DO NOTHING RETURNING id)
-- Only the owner of an unfinished parent can start a child: a worker that was paused must not start it later.
-- part: write_children
born AS (INSERT INTO romancy.instances (id, workflow, status, owner, token, birth, born, input, input_kind, deadline,
    created_at, updated_at, parent, parent_op, is_free)
  SELECT x.id, x.workflow, 1, CASE WHEN x.mine THEN fence.id END, :token::bytea, :token, pg_current_snapshot(), x.input,
    x.kind, x.deadline, x.at, x.at, x.parent, x.parent_op, x.is_free
  FROM unnest(:child_ids::text[], :child_workflows::text[], :child_inputs::bytea[], :child_kinds::smallint[],
    :child_deadlines::bigint[], :child_ats::bigint[], :child_mine::boolean[], :child_parents::text[], :child_ops::text[],
    :child_free::boolean[]) AS x(id, workflow, input, kind, deadline, at, mine, parent, parent_op, is_free), fence,
    LATERAL (SELECT owner, status FROM romancy.instances p WHERE p.id = x.parent OFFSET 0) p
  WHERE p.owner = fence.id AND p.status < 9 ORDER BY x.id ON CONFLICT (id) DO NOTHING RETURNING id)
-- Starts and children that wait in a queue. They have no owner before they are admitted.
-- part: write_queued
queued AS (INSERT INTO romancy.instances (id, workflow, status, token, birth, born, input, input_kind, deadline,
    created_at, updated_at, parent, parent_op, is_free, queue, queue_key, priority)
  SELECT x.id, x.workflow, 8, :token::bytea, :token, coalesce(x.born::pg_snapshot, pg_current_snapshot()), x.input, x.kind,
    x.deadline, x.at, x.at, x.parent, x.parent_op, x.is_free, x.queue, x.key, x.priority
  FROM unnest(:queued_ids::text[], :queued_workflows::text[], :queued_inputs::bytea[], :queued_kinds::smallint[],
    :queued_deadlines::bigint[], :queued_ats::bigint[], :queued_parents::text[], :queued_ops::text[],
    :queued_free::boolean[], :queued_queues::text[], :queued_keys::text[], :queued_priorities::integer[],
    :queued_borns::text[])
    AS x(id, workflow, input, kind, deadline, at, parent, parent_op, is_free, queue, key, priority, born)
    LEFT JOIN LATERAL (SELECT owner, status FROM romancy.instances p WHERE p.id = x.parent OFFSET 0) p ON true
  WHERE (x.parent IS NULL OR p.owner = (SELECT id FROM fence) AND p.status < 9) {queueable}
  ORDER BY x.id ON CONFLICT (id) DO NOTHING RETURNING id)
-- Children in a queue that an instance started just before its run ended.
-- part: write_queued_last
queued_last AS (INSERT INTO romancy.instances (id, workflow, status, token, birth, born, input, input_kind, deadline,
    created_at, updated_at, parent, parent_op, is_free, queue, queue_key, priority)
  SELECT x.id, x.workflow, 8, :token::bytea, :token, pg_current_snapshot(), x.input, x.kind, x.deadline, x.at, x.at,
    x.parent, x.parent_op, x.is_free, x.queue, x.key, x.priority
  FROM unnest(:later_ids::text[], :later_workflows::text[], :later_inputs::bytea[], :later_kinds::smallint[],
    :later_deadlines::bigint[], :later_ats::bigint[], :later_parents::text[], :later_ops::text[],
    :later_free::boolean[], :later_queues::text[], :later_keys::text[], :later_priorities::integer[])
    AS x(id, workflow, input, kind, deadline, at, parent, parent_op, is_free, queue, key, priority)
  WHERE x.parent IN (SELECT id FROM applied) ORDER BY x.id ON CONFLICT (id) DO NOTHING RETURNING id)
-- The planner must not expect many rows and scan the whole table: OFFSET 0 keeps the lookup by id separate, and the
-- outer conditions reduce the estimate. The update checks the conditions again, because it may have to wait for a lock.
-- part: write_touches
meant AS MATERIALIZED (SELECT x.*
  FROM unnest(:ids::text[], :versions::bigint[], :ats::bigint[]) AS x(id, version, at), fence,
    LATERAL (SELECT version, owner, status FROM romancy.instances i WHERE i.id = x.id OFFSET 0) i
  WHERE i.version = x.version AND i.owner = fence.id AND i.status < 9),
applied AS (UPDATE romancy.instances i SET version = i.version + 1, token = :token::bytea, updated_at = x.at
  FROM meant x, fence
  WHERE i.id = x.id AND i.version = x.version AND i.owner IS NOT DISTINCT FROM fence.id AND i.status < 9
  RETURNING i.id)
-- part: write_steps
meant AS MATERIALIZED (SELECT x.*
  FROM unnest(:ids::text[], :versions::bigint[], :ats::bigint[], :statuses::smallint[], :free::boolean[],
    :outputs::bytea[], :errors::bytea[], :descriptions::text[])
    AS x(id, version, at, status, free, output, error, description), fence,
    LATERAL (SELECT version, owner, status FROM romancy.instances i WHERE i.id = x.id OFFSET 0) i
  WHERE i.version = x.version AND i.owner = fence.id AND i.status < 9),
applied AS (UPDATE romancy.instances i SET version = i.version + 1, token = :token::bytea, status = x.status,
    owner = CASE WHEN x.free THEN NULL ELSE i.owner END, updated_at = x.at,
    finished_at = CASE WHEN x.status >= 10 THEN x.at END, output = x.output, error = x.error,
    description = coalesce(x.description, i.description)
  FROM meant x, fence
  WHERE i.id = x.id AND i.version = x.version AND i.owner IS NOT DISTINCT FROM fence.id AND i.status < 9
  RETURNING i.id, x.status >= 10 AS ended)
-- The same for a batch in which an instance goes on with a new run, is blocked because its code does not follow its
-- history, or becomes queued. The events it took, and what is addressed to it, stay as they are.
-- part: write_runs
meant AS MATERIALIZED (SELECT x.*
  FROM unnest(:ids::text[], :versions::bigint[], :ats::bigint[], :statuses::smallint[], :free::boolean[],
    :outputs::bytea[], :errors::bytea[], :descriptions::text[], :next_workflows::text[], :next_inputs::bytea[],
    :next_kinds::smallint[], :next_deadlines::bigint[], :next_bases::bigint[], :forgets::bigint[],
    :builds::text[], :next_queues::text[], :next_keys::text[], :next_priorities::integer[])
      AS x(id, version, at, status, free, output, error, description, workflow, input, kind, deadline,
      base, forget, builds, queue, queue_key, priority), fence,
    LATERAL (SELECT version, owner, status FROM romancy.instances i WHERE i.id = x.id OFFSET 0) i
  WHERE i.version = x.version AND i.owner = fence.id AND i.status < 9),
applied AS (UPDATE romancy.instances i SET version = i.version + 1, token = :token::bytea, status = x.status,
    owner = CASE WHEN x.free THEN NULL ELSE i.owner END, updated_at = x.at,
    finished_at = CASE WHEN x.status >= 10 THEN x.at END, output = x.output, error = x.error,
    queue = coalesce(x.queue, i.queue), queue_key = coalesce(x.queue_key, i.queue_key),
    priority = coalesce(x.priority, i.priority), builds = CASE WHEN x.workflow IS NULL AND x.builds IS NULL THEN i.builds ELSE nullif(x.builds, '') END,
    description = coalesce(x.description, i.description),
    generation = CASE WHEN x.workflow IS NULL THEN i.generation ELSE i.generation + 1 END,
    began_at = CASE WHEN x.workflow IS NULL THEN i.began_at ELSE x.at END,
    limited_from = CASE WHEN x.workflow IS NULL THEN i.limited_from END, base = coalesce(x.base, i.base),
    workflow = coalesce(x.workflow, i.workflow), input = coalesce(x.input, i.input),
    input_kind = coalesce(x.kind, i.input_kind), deadline = coalesce(x.deadline, i.deadline)
  FROM meant x, fence
  WHERE i.id = x.id AND i.version = x.version AND i.owner IS NOT DISTINCT FROM fence.id AND i.status < 9
  RETURNING i.id, x.status >= 10 AS ended, x.forget),
forgotten AS (DELETE FROM romancy.history h USING applied a WHERE h.instance = a.id AND h.n <= a.forget)
-- part: write_entries
entries AS (INSERT INTO romancy.history (instance, n, kind, op, at, input, payload, event)
  SELECT x.* FROM unnest(:entry_instances::text[], :entry_ns::bigint[], :entry_kinds::smallint[], :entry_ops::text[],
    :entry_ats::bigint[], :entry_inputs::bytea[], :entry_payloads::bytea[], :entry_events::bigint[])
    AS x(instance, n, kind, op, at, input, payload, event)
  WHERE x.instance IN (SELECT id FROM applied))
-- Plain commits do not change the instance's row. They are still a compare-and-set: no entry from the first one on may
-- exist, and the instance can't be taken from a worker whose row is locked. Only an earlier submission of this batch,
-- still running on a lost connection, can add the same entries meanwhile: hence ON CONFLICT. Other entries in their
-- place must never exist: then the whole statement fails, by casting a message to a number.
-- part: write_appended
added AS MATERIALIZED (SELECT x.* FROM unnest(:added_instances::text[], :added_ns::bigint[], :added_kinds::smallint[],
    :added_ops::text[], :added_ats::bigint[], :added_inputs::bytea[], :added_payloads::bytea[], :added_events::bigint[])
    AS x(instance, n, kind, op, at, input, payload, event)),
mine AS MATERIALIZED (SELECT x.id, x.first, i.is_new
  FROM unnest(:plain_ids::text[], :plain_versions::bigint[], :plain_firsts::bigint[]) AS x(id, version, first), fence,
    LATERAL (SELECT version, owner, status,
      NOT EXISTS (SELECT 1 FROM romancy.history h WHERE h.instance = x.id AND h.n >= x.first) AS is_new
      FROM romancy.instances i WHERE i.id = x.id OFFSET 0) i
  WHERE i.version = x.version AND i.owner = fence.id AND i.status < 9),
strange AS MATERIALIZED (SELECT m.id FROM mine m CROSS JOIN LATERAL (SELECT * FROM romancy.history h
    WHERE h.instance = m.id AND h.n >= m.first OFFSET 0) h
  WHERE NOT m.is_new AND NOT EXISTS (SELECT 1 FROM added a WHERE a.instance = h.instance AND a.n = h.n
    AND (a.kind, a.op, a.at) = (h.kind, h.op, h.at) AND a.input IS NOT DISTINCT FROM h.input
    AND a.payload IS NOT DISTINCT FROM h.payload AND a.event IS NOT DISTINCT FROM h.event) LIMIT 1),
appended AS (INSERT INTO romancy.history (instance, n, kind, op, at, input, payload, event)
  SELECT * FROM added WHERE instance IN (SELECT id FROM mine WHERE is_new) ON CONFLICT DO NOTHING RETURNING instance)
-- The same for a batch of one entry: a third of the work. If no row is returned, the full statement runs.
-- name: append_one
WITH {write_fence}
INSERT INTO romancy.history (instance, n, kind, op, at, input, payload, event)
  SELECT :instance::text, :n::bigint, :kind::smallint, :op::text, :at::bigint, :input::bytea, :payload::bytea, :event::bigint
  FROM fence, LATERAL (SELECT version, owner, status FROM romancy.instances WHERE id = :instance OFFSET 0) i
  WHERE i.version = :version::bigint AND i.owner = fence.id AND i.status < 9
    AND NOT EXISTS (SELECT 1 FROM romancy.history h WHERE h.instance = :instance AND h.n >= :n)
  ON CONFLICT DO NOTHING RETURNING {time} AS now
-- part: write_ended
ended_deliveries AS (DELETE FROM romancy.deliveries WHERE instance IN (SELECT id FROM applied WHERE ended)),
ended_requests AS (DELETE FROM romancy.requests WHERE instance IN (SELECT id FROM applied WHERE ended)),
ended_unlooked AS (DELETE FROM romancy.unlooked WHERE instance IN (SELECT id FROM applied WHERE ended))
-- The next instance of a queue gets the slot of one that ends, as `admit` does it. If it is new, its row is all there is
-- of it, and is returned: at version 1 it had no owner before. A request to it that is not visible here yet is found as
-- mail: its sender waits for our lock in `cancel_at_once`, and sees the owner after that.
-- part: write_successors
turned AS MATERIALIZED (UPDATE romancy.queues q SET version = q.version + 1, turn = x.turn, reserved = x.reserved
  FROM unnest(:slot_enders::text[], :slot_queues::text[], :slot_versions::bigint[], :slot_turns::text[],
    :slot_reserved::bigint[], :slot_nexts::text[]) AS x(ender, name, version, turn, reserved, next)
  WHERE q.name = x.name AND q.version = x.version AND x.ender IN (SELECT id FROM applied WHERE ended) RETURNING x.next),
succeeding AS MATERIALIZED (SELECT i.id FROM turned t CROSS JOIN LATERAL
  (SELECT i.id FROM romancy.instances i WHERE i.id = t.next AND coalesce(i.status, 0) = 8
   FOR NO KEY UPDATE SKIP LOCKED) i),
admitted AS (UPDATE romancy.instances i SET status = 1, version = i.version + 1, updated_at = :at::bigint,
    owner = CASE WHEN i.workflow = ANY(:workflows::text[]) THEN (SELECT id FROM fence) END, limited_from = :at,
    deadline = :at + i.deadline - coalesce(i.limited_from, i.began_at, i.created_at), began_at = {begun}
  FROM succeeding n WHERE i.id = n.id RETURNING i.id, ARRAY[{row_names}] AS names, ARRAY[{row_numbers}] AS numbers, deadline,
    CASE WHEN i.version = 1 AND i.owner IS NOT NULL AND NOT EXISTS (SELECT 1 FROM romancy.requests r WHERE r.instance = i.id)
      AND NOT EXISTS (SELECT 1 FROM romancy.headers h WHERE h.instance = i.id) THEN input END AS input)
-- part: write_consumed
consumed AS (INSERT INTO romancy.consumed (instance, event, op)
  SELECT x.* FROM unnest(:taken_instances::text[], :taken_events::bigint[], :taken_ops::text[]) AS x(instance, event, op)
  WHERE x.instance IN (SELECT id FROM applied))
-- part: write_marks
marks AS (INSERT INTO romancy.marks (instance, type, shape, key, model, xid, seq)
  SELECT DISTINCT ON (x.instance, x.type, x.shape, x.key, x.model)
    x.instance, x.type, x.shape, x.key, x.model, x.xid::text::xid8, x.seq
  FROM unnest(:mark_instances::text[], :mark_types::text[], :mark_shapes::integer[], :mark_keys::bytea[],
    :mark_models::text[], :mark_xids::bigint[], :mark_seqs::bigint[]) AS x(instance, type, shape, key, model, xid, seq)
  WHERE x.instance IN (SELECT id FROM applied)
  ORDER BY x.instance, x.type, x.shape, x.key, x.model, x.xid DESC, x.seq DESC
  ON CONFLICT (instance, type, shape, key, model) DO UPDATE SET xid = excluded.xid, seq = excluded.seq)
-- part: write_given_back
given_back AS (DELETE FROM romancy.consumed c
  USING unnest(:back_instances::text[], :back_events::bigint[]) AS x(instance, event)
  WHERE c.instance = x.instance AND c.event = x.event AND x.instance IN (SELECT id FROM applied)),
unmarked AS (DELETE FROM romancy.marks m
  WHERE m.instance = ANY(:back_instances) AND m.instance IN (SELECT id FROM applied))
-- part: write_misfits
misfits AS (INSERT INTO romancy.misfits (instance, model, event, op, error)
  SELECT x.* FROM unnest(:misfit_instances::text[], :misfit_models::text[], :misfit_events::bigint[],
    :misfit_ops::text[], :misfit_errors::text[]) AS x(instance, model, event, op, error)
  WHERE x.instance IN (SELECT id FROM applied) ON CONFLICT DO NOTHING)
-- part: write_closed
closed AS (DELETE FROM romancy.waits w USING unnest(:closed_instances::text[], :closed_ops::text[]) AS x(instance, op)
  WHERE w.instance = x.instance AND w.op = x.op AND x.instance IN (SELECT id FROM applied)),
closed_keys AS (DELETE FROM romancy.wait_keys k
  USING unnest(:closed_instances::text[], :closed_ops::text[]) AS x(instance, op)
  WHERE k.instance = x.instance AND k.op = x.op AND x.instance IN (SELECT id FROM applied))
-- part: write_hints
hints AS (DELETE FROM romancy.deliveries d
  USING unnest(:hint_instances::text[], :hint_events::bigint[]) AS x(instance, event)
  WHERE d.instance = x.instance AND d.event = x.event AND x.instance IN (SELECT id FROM applied))
-- part: write_opened
opened AS (INSERT INTO romancy.waits (instance, op, due_at, born, since, model, spec, location, created_at)
  SELECT x.instance, x.op, x.due, CASE x.born WHEN 'now' THEN pg_current_snapshot() ELSE x.born::pg_snapshot END,
    x.since, x.model, x.spec, x.location, x.at
  FROM unnest(:wait_instances::text[], :wait_ops::text[], :wait_dues::bigint[], :wait_borns::text[],
    :wait_sinces::bigint[], :wait_models::text[], :wait_specs::bytea[], :wait_locations::text[], :wait_ats::bigint[])
    AS x(instance, op, due, born, since, model, spec, location, at)
  WHERE x.instance IN (SELECT id FROM applied) ON CONFLICT DO NOTHING)
-- part: write_keys
opened_keys AS (INSERT INTO romancy.wait_keys (type, shape, key, instance, op, follows, alike)
  SELECT x.* FROM unnest(:key_types::text[], :key_shapes::integer[], :key_keys::bytea[], :key_instances::text[],
    :key_ops::text[], :key_follows::boolean[], :key_alike::bytea[]) AS x(type, shape, key, instance, op, follows, alike)
  WHERE x.instance IN (SELECT id FROM applied) ON CONFLICT DO NOTHING)
-- If an earlier look is still due, the looks of this commit are not all. The row is then written anew: a look that is
-- under way has not seen the waits of this commit, and must not delete it (`xmin` tells).
-- part: write_unlooked
unlooked AS (INSERT INTO romancy.unlooked AS l (instance) SELECT x.id FROM unnest(:unlooked::text[]) AS x(id)
  WHERE x.id IN (SELECT id FROM applied)
  ON CONFLICT (instance) DO UPDATE SET instance = l.instance RETURNING l.instance, l.xmax = 0 AS fresh)
-- part: write_attempts
attempts AS (INSERT INTO romancy.attempts (instance, op, n, first_at, next_due, error, progress, crashes, started)
  SELECT x.* FROM unnest(:attempt_instances::text[], :attempt_ops::text[], :attempt_ns::integer[],
    :attempt_firsts::bigint[], :attempt_dues::bigint[], :attempt_errors::bytea[], :attempt_progress::bytea[],
    :attempt_crashes::integer[], :attempt_started::boolean[])
    AS x(instance, op, n, first_at, next_due, error, progress, crashes, started)
  WHERE x.instance IN (SELECT id FROM applied)
  ON CONFLICT (instance, op) DO UPDATE SET n = excluded.n, next_due = excluded.next_due, error = excluded.error,
    progress = excluded.progress, crashes = excluded.crashes, started = excluded.started, suspected_at = NULL)
-- The same for suspects, with their evidence.
-- part: write_suspects
suspects AS (INSERT INTO romancy.attempts (instance, op, n, first_at, next_due, error, progress, crashes, started,
    suspected_at, tried, tried_alone, alone, run, is_alone, culprit)
  SELECT x.* FROM unnest(:suspect_instances::text[], :suspect_ops::text[], :suspect_ns::integer[],
    :suspect_firsts::bigint[], :suspect_dues::bigint[], :suspect_errors::bytea[], :suspect_progress::bytea[],
    :suspect_crashes::integer[], :suspect_started::boolean[], :suspect_sinces::bigint[], :suspect_tried::bigint[],
    :suspect_tried_alone::bigint[], :suspect_alone::integer[], :suspect_runs::bigint[], :suspect_are_alone::boolean[],
    :suspect_culprits::text[])
    AS x(instance, op, n, first_at, next_due, error, progress, crashes, started, suspected_at, tried, tried_alone,
      alone, run, is_alone, culprit)
  WHERE x.instance IN (SELECT id FROM applied)
  ON CONFLICT (instance, op) DO UPDATE SET n = excluded.n, next_due = excluded.next_due, error = excluded.error,
    progress = excluded.progress, crashes = excluded.crashes, started = excluded.started,
    suspected_at = excluded.suspected_at, tried = excluded.tried, tried_alone = excluded.tried_alone,
    alone = excluded.alone, run = excluded.run, is_alone = excluded.is_alone, culprit = excluded.culprit)
-- part: write_trials
trials AS (INSERT INTO romancy.trials (culprit, at, since, tried_alone, alone)
  SELECT x.culprit, x.at, x.since, x.tried_alone, x.alone FROM unnest(:trial_instances::text[],
    :trial_culprits::text[], :trial_ats::bigint[], :trial_sinces::bigint[], :trial_tried::bigint[],
    :trial_alone::integer[]) AS x(instance, culprit, at, since, tried_alone, alone)
  WHERE x.instance IN (SELECT id FROM applied))
-- part: write_attempts_done
attempts_done AS (DELETE FROM romancy.attempts a
  USING unnest(:tried_instances::text[], :tried_ops::text[]) AS x(instance, op)
  WHERE a.instance = x.instance AND a.op = x.op AND x.instance IN (SELECT id FROM applied))
-- part: write_requests_done
requests_done AS (DELETE FROM romancy.requests r
  USING unnest(:asked_instances::text[], :asked_ids::bigint[]) AS x(instance, id)
  WHERE r.id = x.id AND x.instance IN (SELECT id FROM applied))
-- What instances leave for their parents and children. The token is one for each: it tells a repeated submission.
-- part: write_letters
letters AS (INSERT INTO romancy.requests (instance, kind, payload, at, token, n, op)
  SELECT x.instance, x.kind, x.payload, x.at, x.token, 0, x.op
  FROM unnest(:letter_senders::text[], :letter_instances::text[], :letter_kinds::smallint[], :letter_payloads::bytea[],
    :letter_ats::bigint[], :letter_tokens::bytea[], :letter_ops::text[]) AS x(sender, instance, kind, payload, at, token, op),
    LATERAL (SELECT status, parent FROM romancy.instances i WHERE i.id = x.instance OFFSET 0) i
  WHERE x.sender IN (SELECT id FROM applied) AND i.status < 10 AND (x.op IS NOT NULL OR i.parent = x.sender)
  ON CONFLICT (token, n) DO NOTHING RETURNING id, instance, kind, payload, op),
told AS (SELECT l.*, CASE WHEN o.id IS NULL THEN i.owner END AS owner FROM letters l
  CROSS JOIN LATERAL (SELECT owner FROM romancy.instances i WHERE i.id = l.instance OFFSET 0) i
  LEFT JOIN romancy.orphans o ON o.id = i.owner)
-- Children that retried parents wait for again, unless their end is already under way. They are locked, to wait for a
-- final commit that did not see yet that the parent is open. If it did see that, the parent gets the end twice, which
-- makes no difference, or the end of a child that is reopened: then the parent fails, and can be retried again. A child
-- that can't be reopened, or was found though it was to be started, is spent: its parent starts another one. So is one
-- that had to be waited for (another version): this statement does not see whether it has undone its steps by now. If
-- it was found, its end is under way then.
-- part: write_rejoins
kin AS MATERIALIZED (SELECT c.*, x.parent AS waits, x.op, x.at, x.token, x.reopens, x.is_found
  FROM unnest(:kin_parents::text[], :kin_children::text[], :kin_ops::text[], :kin_ats::bigint[], :kin_tokens::bytea[],
      :kin_reopens::boolean[], :kin_found::boolean[]) AS x(parent, child, op, at, token, reopens, is_found),
    LATERAL (SELECT id, status, output, error, base, version FROM romancy.instances i
      WHERE i.id = x.child AND i.parent = x.parent AND i.parent_op = x.op ORDER BY i.id FOR NO KEY UPDATE) c
  WHERE x.parent IN (SELECT id FROM applied)
    AND NOT EXISTS (SELECT 1 FROM romancy.requests r WHERE r.instance = x.parent AND r.op = x.op
      AND NOT (x.reopens AND r.kind IN (4, 5)))),
rejoined AS (UPDATE romancy.instances i SET status = CASE WHEN i.queue IS NULL THEN 1 ELSE 8 END, owner = NULL, version = i.version + 1, finished_at = NULL,
    output = NULL, error = NULL, updated_at = e.at, limited_from = e.at,
    deadline = e.at + i.deadline - coalesce(i.limited_from, i.began_at, i.created_at)
  FROM kin e WHERE i.id = e.id AND i.version = e.version AND e.reopens AND e.status IN (11, 12) AND NOT {undone}
  RETURNING i.id, e.error, e.at, e.token),
rejoined_mail AS (DELETE FROM romancy.requests r USING kin k WHERE r.instance = k.id AND r.kind = 6 AND k.reopens),
late_ends AS (DELETE FROM romancy.requests r USING kin k
  WHERE r.instance = k.waits AND r.op = k.op AND k.reopens AND r.kind IN (4, 5)),
rejoined_asks AS (INSERT INTO romancy.requests (instance, kind, payload, at, token, n)
  SELECT id, 7, :retry_head::bytea || coalesce(error, ''), at, token, 0 FROM rejoined ON CONFLICT (token, n) DO NOTHING),
rejoined_ends AS (INSERT INTO romancy.requests (instance, kind, payload, at, token, n, op)
  SELECT k.waits, CASE WHEN k.is_found OR k.reopens AND k.status <> 10 THEN 8 WHEN k.status = 10 THEN 3
      WHEN k.status = 11 THEN 4 ELSE 5 END,
    CASE k.status WHEN 10 THEN coalesce(k.output, 'null') ELSE coalesce(k.error, '{}') END, k.at, k.token, 1, k.op
  FROM kin k WHERE k.status >= 10 AND k.id NOT IN (SELECT id FROM rejoined) AND NOT (k.is_found AND NOT EXISTS
    (SELECT 1 FROM romancy.instances s WHERE s.id = k.id AND s.version = k.version)) ON CONFLICT (token, n) DO NOTHING)
-- Children in whose place others are started. The new version makes a worker that runs one of them read that.
-- part: write_replaced
replaced AS (UPDATE romancy.instances i SET parent_op = NULL, version = i.version + 1
  FROM unnest(:replaced_parents::text[], :replaced_children::text[]) AS x(parent, child)
  WHERE i.id = x.child AND i.parent = x.parent AND x.parent IN (SELECT id FROM applied))
-- Children that an instance started just before its run ended.
-- part: write_last_children
last_born AS (INSERT INTO romancy.instances (id, workflow, status, token, birth, born, input, input_kind, deadline,
    created_at, updated_at, parent, parent_op, is_free)
  SELECT x.id, x.workflow, 1, :token::bytea, :token, pg_current_snapshot(), x.input, x.kind, x.deadline, x.at, x.at,
    x.parent, x.parent_op, x.is_free
  FROM unnest(:last_ids::text[], :last_workflows::text[], :last_inputs::bytea[], :last_kinds::smallint[],
    :last_deadlines::bigint[], :last_ats::bigint[], :last_parents::text[], :last_ops::text[],
    :last_free::boolean[]) AS x(id, workflow, input, kind, deadline, at, parent, parent_op, is_free)
  WHERE x.parent IN (SELECT id FROM applied) ORDER BY x.id ON CONFLICT (id) DO NOTHING RETURNING id)
-- What instances show of themselves.
-- part: write_views
views AS (INSERT INTO romancy.views AS v (instance, value, at)
  SELECT x.* FROM unnest(:view_instances::text[], :view_values::bytea[], :view_ats::bigint[]) AS x(instance, value, at)
  WHERE x.instance IN (SELECT id FROM applied)
  ON CONFLICT (instance) DO UPDATE SET value = excluded.value, at = excluded.at WHERE v.value <> excluded.value)
-- part: write_attributes
attributes AS (INSERT INTO romancy.attributes AS t (instance, name, value, created_at)
  SELECT x.* FROM unnest(:attribute_instances::text[], :attribute_names::text[], :attribute_values::text[],
    :attribute_ats::bigint[]) AS x(instance, name, value, created_at)
  WHERE x.instance IN (SELECT id FROM applied)
  ON CONFLICT (instance, name) DO UPDATE SET value = excluded.value WHERE t.value <> excluded.value)
-- part: write_removed
removed AS (DELETE FROM romancy.attributes t
  USING unnest(:removed_instances::text[], :removed_names::text[]) AS x(instance, name)
  WHERE t.instance = x.instance AND t.name = x.name AND x.instance IN (SELECT id FROM applied))
-- What retried instances no longer show: views, and other attributes than these (a JSON array).
-- part: write_unshown
unshown AS MATERIALIZED (SELECT x.* FROM unnest(:unshown_instances::text[], :unshown_views::boolean[],
    :unshown_others::text[]) AS x(instance, view, others) WHERE x.instance IN (SELECT id FROM applied)),
unviewed AS (DELETE FROM romancy.views v USING unshown x WHERE v.instance = x.instance AND x.view),
undescribed AS (DELETE FROM romancy.attributes t USING unshown x
  WHERE t.instance = x.instance AND NOT jsonb_exists(x.others::jsonb, t.name))
-- The attributes that starts have from their arguments.
-- part: write_first_attributes
first_attributes AS (INSERT INTO romancy.attributes (instance, name, value, created_at)
  SELECT x.* FROM unnest(:first_instances::text[], :first_names::text[], :first_values::text[], :first_ats::bigint[])
    AS x(instance, name, value, created_at)
  WHERE x.instance IN ({newborn}) ON CONFLICT DO NOTHING)
-- Who started them.
-- part: write_first_acts
first_acts AS (INSERT INTO romancy.acts (instance, at, verb, who)
  SELECT x.instance, x.at, 'start', x.who
  FROM unnest(:starter_instances::text[], :starter_ats::bigint[], :starters::text[]) AS x(instance, at, who)
  WHERE x.instance IN ({newborn}))
-- What travels with them.
-- part: write_first_headers
first_headers AS (INSERT INTO romancy.headers (instance, headers)
  SELECT x.instance, x.headers FROM unnest(:carriers::text[], :carried::text[]) AS x(instance, headers)
  WHERE x.instance IN ({newborn}) ON CONFLICT (instance) DO UPDATE SET headers = excluded.headers)
-- part: write_headers
headers AS (INSERT INTO romancy.headers (instance, headers)
  SELECT x.instance, x.headers FROM unnest(:later_carriers::text[], :later_carried::text[]) AS x(instance, headers)
  WHERE x.instance IN (SELECT id FROM applied) ON CONFLICT (instance) DO UPDATE SET headers = excluded.headers)
-- Which starts were stored, by piece.
-- part: newborn_starts
SELECT id FROM started
-- part: newborn_children
SELECT id FROM born
-- part: newborn_last_children
SELECT id FROM last_born
-- part: newborn_queued
SELECT id FROM queued
-- part: newborn_queued_last
SELECT id FROM queued_last
-- Numbers are drawn in the order of the batch; rows are inserted by (source, id), so that two batches can't deadlock.
-- part: write_events
numbered AS MATERIALIZED (SELECT nextval('romancy.event_numbers') AS seq, x.*
  FROM unnest(:event_sources::text[], :event_ids::text[], :event_types::text[], :event_subjects::text[],
    :event_times::bigint[], :event_targets::text[], :event_attrs::bytea[], :event_datas::bytea[],
    :event_accepted::bigint[], :event_expires::bigint[], :event_unfit::text[], :event_senders::text[], :event_origins::text[])
    AS x(source, id, type, subject, time, target, attrs, data, accepted_at, expires_at, unfit, sender, origin)),
accepted AS (INSERT INTO romancy.events
  (seq, source, id, type, subject, time, target, attrs, data, token, accepted_at, expires_at, origin)
  SELECT seq, source, id, type, subject, time, target, attrs, data, :token::bytea, accepted_at, expires_at, origin
  FROM numbered
  WHERE {sendable} ORDER BY source, id, seq ON CONFLICT (source, id) DO NOTHING RETURNING source, id, seq),
undispatched AS (INSERT INTO romancy.undispatched (event, seen, unfit, at)
  SELECT seq, pg_current_snapshot(), coalesce(n.unfit, '[]'), {time}
  FROM accepted JOIN numbered n USING (seq) WHERE n.expires_at IS NULL OR n.expires_at > :at::bigint)
-- Who answered a question.
-- part: write_answers
answers AS (INSERT INTO romancy.acts (instance, at, verb, who)
  SELECT x.instance, greatest(x.at, i.created_at), 'answer', x.who
  FROM unnest(:answer_sources::text[], :answer_ids::text[], :answer_instances::text[], :answer_ats::bigint[],
    :answerers::text[]) AS x(source, id, instance, at, who)
  CROSS JOIN LATERAL (SELECT created_at FROM romancy.instances i WHERE i.id = x.instance OFFSET 0) i
  WHERE (x.source, x.id) IN (SELECT source, id FROM accepted))
-- Which events can be stored: all except those sent by a commit that was refused.
-- part: sent_by_nobody
sender IS NULL
-- part: sent_by_applied
sender IS NULL OR sender IN (SELECT id FROM applied)

-- The results of the group commit. A worker's commits need not check `outdated`: the migration deleted its row, and the
-- fence with it.
-- part: result_fence
(SELECT count(*) FROM fence) AS alive, {time} AS now
-- part: result_applied
(SELECT array_agg(id) FROM applied) AS applied
-- part: result_appended
(SELECT array_agg(instance) FROM appended) AS appended, (SELECT ('the history of ' || id ||
  ' is not as its owner knows it; nothing is stored')::integer FROM strange) AS strange
-- part: result_starts
(SELECT array_agg(id) FROM started) AS started
-- part: result_children
(SELECT array_agg(id) FROM born) AS born
-- part: result_queued
(SELECT array_agg(id) FROM queued) AS queued
-- part: result_letters
(SELECT array_agg(ARRAY[id::text, instance, owner, kind::text, op] ORDER BY id) FROM told) AS letters,
  (SELECT array_agg(payload ORDER BY id) FROM told) AS letter_payloads
-- part: result_successors
(SELECT array_agg(id || names ORDER BY id) FROM admitted) AS admitted,
  (SELECT array_agg(numbers ORDER BY id) FROM admitted) AS admitted_numbers,
  (SELECT array_agg(input ORDER BY id) FROM admitted) AS admitted_inputs,
  (SELECT array_agg(deadline ORDER BY id) FROM admitted) AS admitted_deadlines
-- part: result_unlooked
(SELECT array_agg(instance) FROM unlooked WHERE fresh) AS unlooked
-- part: result_events
(SELECT array_agg(source ORDER BY seq) FROM accepted) AS sources,
  (SELECT array_agg(id ORDER BY seq) FROM accepted) AS ids, (SELECT array_agg(seq ORDER BY seq) FROM accepted) AS seqs
-- part: result_outdated
{outdated} AS outdated
-- The answer does not wait for the disk.
-- part: result_relaxed
set_config('synchronous_commit', 'off', true)
-- part: result_bounded
set_config('idle_in_transaction_session_timeout', :idle::text, true)

-- name: is_prepared
SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_prepared_statements WHERE name = :name::text)
-- name: store_result
-- Stores the result of a transactional activity. It fails if that is refused: its COMMIT follows in the same message.
WITH {write_fence},
applied AS (UPDATE romancy.instances i SET version = i.version + 1, token = :token::bytea, updated_at = :at::bigint
  FROM fence WHERE i.id = :instance::text AND i.version = :version::bigint AND i.owner = fence.id AND i.status < 9
  RETURNING i.id),
entry AS (INSERT INTO romancy.history (instance, n, kind, op, at, input, payload, event)
  SELECT id, :n::bigint, :kind::smallint, :op::text, :at, :input::bytea, :payload::bytea, :event::bigint FROM applied),
tried AS (INSERT INTO romancy.attempts (instance, op, n, first_at, crashes, started)
  SELECT id, :op, 0, :first_at::bigint, 0, true FROM applied WHERE :first_at IS NOT NULL
  ON CONFLICT (instance, op) DO NOTHING),
done AS (DELETE FROM romancy.attempts a USING applied WHERE a.instance = applied.id AND a.op = ANY(:done::text[]))
SELECT CASE WHEN EXISTS (SELECT 1 FROM applied) THEN 1
  ELSE ('not applied, alive ' || (SELECT count(*) FROM fence))::integer END
-- name: await_commit
-- Waits until a commit is decided whose connection was lost: until then its session holds the instance.
SELECT 1 FROM romancy.instances WHERE id = :id::text FOR NO KEY UPDATE
-- name: resolve_commits
SELECT id FROM romancy.instances WHERE id = ANY(:ids::text[]) AND token = :token::bytea
-- name: resolve_entries
SELECT h.instance, h.n, h.kind, h.op, h.at, h.input, h.payload, h.event
FROM unnest(:ids::text[], :firsts::bigint[], :lasts::bigint[]) AS x(id, first, last)
CROSS JOIN LATERAL (SELECT * FROM romancy.history h WHERE h.instance = x.id AND h.n BETWEEN x.first AND x.last OFFSET 0) h
ORDER BY h.instance, h.n
-- name: resolve_starts
SELECT x.n, i.workflow, regexp_replace(i.workflow, {version}, '') = regexp_replace(x.workflow, {version}, '')
  AND i.input = x.input AS same, i.birth = :token::bytea AS ours
FROM unnest(:ids::text[], :workflows::text[], :inputs::bytea[]) WITH ORDINALITY AS x(id, workflow, input, n)
CROSS JOIN LATERAL (SELECT * FROM romancy.instances i WHERE i.id = x.id OFFSET 0) i
-- name: resolve_children
SELECT x.n, i.workflow, i.parent = x.parent AND i.parent_op = x.op AS same, i.birth = :token::bytea AS ours
FROM unnest(:ids::text[], :parents::text[], :ops::text[]) WITH ORDINALITY AS x(id, parent, op, n)
CROSS JOIN LATERAL (SELECT * FROM romancy.instances i WHERE i.id = x.id OFFSET 0) i
-- The stored event is returned only if it is not identical; most duplicates are.
-- name: resolve_events
SELECT x.n, e.seq, e.token = :token::bytea AS ours, e.same, CASE WHEN NOT e.same THEN e.type END AS type,
  CASE WHEN NOT e.same THEN e.subject END AS subject, CASE WHEN NOT e.same THEN e.target END AS target,
  CASE WHEN NOT e.same THEN e.attrs END AS attrs, CASE WHEN NOT e.same THEN e.data END AS data
FROM unnest(:sources::text[], :ids::text[], :types::text[], :subjects::text[], :targets::text[], :attrs::bytea[],
  :datas::bytea[]) WITH ORDINALITY AS x(source, id, type, subject, target, attrs, data, n)
CROSS JOIN LATERAL (SELECT *, e.type = x.type AND (e.subject, e.target, e.attrs, e.data)
    IS NOT DISTINCT FROM (x.subject, x.target, x.attrs, x.data) AS same
  FROM romancy.events e WHERE e.source = x.source AND e.id = x.id OFFSET 0) e
-- Differs: several in one statement.
-- name: set_differed
UPDATE romancy.events SET differed_at = :at::bigint WHERE seq = ANY(:seqs::bigint[]) AND differed_at IS NULL

-- === an event looks for waits ===

-- name: known
SELECT type, id, fields, NULL::text AS workflow, NULL::bigint AS timeout FROM romancy.shapes WHERE type = ANY(:types::text[])
UNION ALL SELECT type, NULL, NULL, workflow, timeout FROM romancy.triggers WHERE type = ANY(:types)
-- Waits are searched once per kind of event, not once per event: thousands of waits can be identical. One follower of
-- each kind in an instance is enough, since the event it takes leads to the next; an index leads to the next kind. Does
-- nothing unless the keys and starts were computed from the current shapes and triggers. Need not be flushed to disk at
-- once: what is lost in a crash of the server is still undispatched.
--
-- Instances that wait and have no owner, or one that stopped by itself, go to this worker as far as it has room. `claim`
-- would do the same a moment later; it also takes those of workers that died, which may be suspects, and those with
-- requests, which are read first. Rows that others have locked are skipped.
--
-- `is_oldest`: no look is needed, because the event is the oldest that the wait can take. A look that found nothing has
-- seen all events before it; events that became visible later are undispatched, or noted as deliveries until the
-- instance has dealt with them. So there is nothing older if no other event is undispatched, no look is due, and nothing
-- is noted. An event that is not visible here yet was sent at the same time, and has no order. An instance is taken only if
-- its version is the one that is seen here: otherwise another worker had it in between.
-- name: dispatch
WITH RECURSIVE fence AS MATERIALIZED (SELECT id FROM romancy.workers WHERE id = :worker::text FOR KEY SHARE),
fresh AS MATERIALIZED (SELECT
  (SELECT coalesce(array_agg(id ORDER BY id), '{}') FROM romancy.shapes WHERE type = ANY(:types::text[]))
    = :shapes::integer[]
  AND (SELECT coalesce(array_agg(type || ' ' || workflow || ' ' || coalesce(timeout, -1) ORDER BY type, workflow), '{}')
    FROM romancy.triggers WHERE type = ANY(:types)) = :triggers::text[] AND r.may AS ok, r.may,
  set_config('synchronous_commit', 'off', true) AS unhurried
  FROM (SELECT min_reader <= {reader} AS may FROM romancy.schema_info) r),
e AS MATERIALIZED (SELECT e.seq, e.xid, e.type, e.target, e.accepted_at, e.expires_at, u.seen
  FROM fresh, romancy.events e LEFT JOIN romancy.undispatched u ON u.event = e.seq
  WHERE fresh.ok AND e.seq = ANY(:seqs::bigint[])),
k AS MATERIALIZED (
  SELECT e.*, s.shape, ''::bytea AS key FROM e, (VALUES (0), (-1)) AS s(shape)
  UNION ALL SELECT e.*, x.shape, x.key
  FROM unnest(:key_seqs::bigint[], :key_shapes::integer[], :key_keys::bytea[]) AS x(seq, shape, key) JOIN e USING (seq)),
indexed AS (INSERT INTO romancy.event_keys (shape, key, xid, seq) SELECT shape, key, xid, seq FROM k WHERE shape > 0
  ORDER BY shape, key, xid, seq ON CONFLICT DO NOTHING),
kinds AS MATERIALIZED (SELECT DISTINCT type, target, shape, key FROM k),
followers AS (
  SELECT k.*, y.* FROM kinds k CROSS JOIN LATERAL (SELECT y.instance, y.op, y.alike FROM romancy.wait_keys y
    WHERE y.type = k.type AND y.shape = k.shape AND y.key = k.key AND y.follows AND y.instance >= coalesce(k.target, '')
    ORDER BY y.instance, y.alike, y.op LIMIT 1) y WHERE k.target IS NULL OR k.target = y.instance
  UNION ALL
  SELECT k.type, k.target, k.shape, k.key, y.* FROM followers k
    CROSS JOIN LATERAL (SELECT y.instance, y.op, y.alike FROM romancy.wait_keys y WHERE y.type = k.type
    AND y.shape = k.shape AND y.key = k.key AND y.follows AND (y.instance, y.alike) > (k.instance, k.alike)
    ORDER BY y.instance, y.alike, y.op LIMIT 1) y WHERE k.target IS NULL OR k.target = y.instance),
found AS (
  SELECT k.*, y.instance, y.op FROM kinds k CROSS JOIN LATERAL (SELECT instance, op FROM romancy.wait_keys y
    WHERE y.type = k.type AND y.shape = k.shape AND y.key = k.key AND NOT y.follows OFFSET 0) y WHERE k.target IS NULL
  UNION ALL SELECT k.*, y.instance, y.op FROM kinds k CROSS JOIN LATERAL (SELECT instance, op FROM romancy.wait_keys y
    WHERE y.type = k.type AND y.shape = k.shape AND y.key = k.key AND NOT y.follows AND y.instance = k.target OFFSET 0) y
    WHERE k.target IS NOT NULL
  UNION ALL SELECT type, target, shape, key, instance, op FROM followers),
alike AS MATERIALIZED (
  SELECT f.type, f.target, f.shape, f.key, f.instance, min(f.op) AS op, w.model, w.spec,
    bool_and(w.born IS NULL AND w.since IS NULL) AS reaches_back
  FROM found f CROSS JOIN LATERAL (SELECT * FROM romancy.waits w WHERE w.instance = f.instance AND w.op = f.op OFFSET 0) w
  GROUP BY f.type, f.target, f.shape, f.key, f.instance, w.model, w.spec,
    CASE WHEN w.born IS NULL AND w.since IS NULL THEN '' ELSE f.op END),
matched AS MATERIALIZED (SELECT k.seq, k.xid, k.accepted_at, k.expires_at, a.shape, a.instance, a.op, a.model, a.spec,
    a.reaches_back, count(*) OVER (PARTITION BY a.instance) AS matches
  FROM k JOIN alike a
  ON a.type = k.type AND a.shape = k.shape AND a.key = k.key AND a.target IS NOT DISTINCT FROM k.target),
owned AS MATERIALIZED (SELECT m.*, CASE WHEN o.id IS NULL THEN i.owner END AS owner, i.owner IS NULL OR o.clean AS is_free,
    i.status, i.version, i.born, NULL::bigint AS since, i.trigger_xid, i.trigger_seq
  FROM matched m LEFT JOIN LATERAL (SELECT * FROM romancy.instances i WHERE i.id = m.instance OFFSET 0) i ON true
  LEFT JOIN romancy.orphans o ON o.id = i.owner),
woken AS MATERIALIZED (SELECT i.id FROM (SELECT DISTINCT instance, version FROM owned WHERE is_free AND shape >= 0) o
  CROSS JOIN LATERAL (SELECT i.id FROM romancy.instances i
   WHERE i.id = o.instance AND i.version = o.version AND {only_waits} AND i.workflow = ANY(:workflows::text[])
     AND (i.owner IS NULL OR EXISTS (SELECT 1 FROM romancy.orphans w WHERE w.id = i.owner AND w.clean))
     AND NOT EXISTS (SELECT 1 FROM romancy.requests r WHERE r.instance = i.id OFFSET 0)
   FOR NO KEY UPDATE SKIP LOCKED) i LIMIT :room::integer),
taken AS (UPDATE romancy.instances i SET owner = fence.id, version = i.version + 1 FROM woken w, fence
  WHERE i.id = w.id RETURNING i.id),
calm AS MATERIALIZED (SELECT (SELECT count(*) FROM romancy.undispatched) = (SELECT count(seen) FROM e) AS yes,
  pg_snapshot_xmin(pg_current_snapshot()) AS horizon),
delivered AS (INSERT INTO romancy.deliveries (instance, event) SELECT DISTINCT instance, seq FROM matched
  ORDER BY instance, seq ON CONFLICT DO NOTHING),
started AS (INSERT INTO romancy.instances (id, workflow, status, owner, token, birth, born, trigger_xid, trigger_seq,
    input, input_kind, deadline, created_at, updated_at)
  SELECT x.id, x.workflow, 1, CASE WHEN x.mine THEN (SELECT id FROM fence) END, :token::bytea, :token,
    coalesce(e.seen, pg_current_snapshot()), e.xid, e.seq, x.input, :kind::smallint, x.deadline, x.at, x.at
  FROM unnest(:new_seqs::bigint[], :new_ids::text[], :new_workflows::text[], :new_mine::boolean[], :new_inputs::bytea[],
    :new_deadlines::bigint[], :new_ats::bigint[]) AS x(seq, id, workflow, mine, input, deadline, at) JOIN e USING (seq)
  ORDER BY x.id ON CONFLICT (id) DO NOTHING RETURNING id, owner),
begun AS (INSERT INTO romancy.consumed (instance, event, op) SELECT s.id, x.seq, '(start)' FROM started s
  JOIN unnest(:new_seqs::bigint[], :new_ids::text[]) AS x(seq, id) USING (id) ON CONFLICT DO NOTHING),
dispatched AS (DELETE FROM romancy.undispatched u USING e WHERE u.event = e.seq)
SELECT fresh.ok, fresh.may, r.* FROM fresh LEFT JOIN (
  SELECT 1 AS what, k.seq, k.shape, k.instance, k.op, k.model, k.spec,
    CASE WHEN k.instance IN (SELECT id FROM taken) THEN :worker ELSE k.owner END AS owner,
    d.yes AS is_oldest, k.xid::text::bigint AS xid, k.xid < calm.horizon AS settled
  FROM calm CROSS JOIN owned k
  LEFT JOIN LATERAL (SELECT true AS yes FROM (SELECT k.seq, k.xid, k.accepted_at, k.expires_at) e
    WHERE calm.yes AND k.matches = 1 AND k.reaches_back AND k.shape >= 0
      AND (k.owner = :worker AND k.status < 9 OR k.is_free) AND {free}
      AND NOT EXISTS (SELECT 1 FROM romancy.deliveries d WHERE d.instance = k.instance OFFSET 0)
      AND NOT EXISTS (SELECT 1 FROM romancy.unlooked l WHERE l.instance = k.instance OFFSET 0) OFFSET 0) d ON true
  UNION ALL SELECT 2, NULL, NULL, id, NULL, NULL, NULL, owner, NULL, NULL, NULL FROM started
  UNION ALL SELECT 2, NULL, NULL, id, NULL, NULL, NULL, owner, NULL, NULL, NULL FROM romancy.instances, fresh
    WHERE fresh.ok AND id = ANY(:new_ids) AND birth = :token
) r ON true
-- name: anchored_waits
SELECT k.key, w.spec FROM romancy.wait_keys k CROSS JOIN LATERAL (SELECT spec FROM romancy.waits w
  WHERE w.instance = k.instance AND w.op = k.op OFFSET 0) w WHERE k.type = :type::text AND k.shape = :shape::integer
ORDER BY k.type, k.shape, k.key
-- name: left_undispatched
SELECT {event}, u.unfit
FROM romancy.undispatched u JOIN romancy.events e ON e.seq = u.event
WHERE u.at < {time} - :age::bigint ORDER BY u.event LIMIT 500

-- name: shapes_of_types
SELECT type, id, fields, ready FROM romancy.shapes WHERE type = ANY(:types::text[])
-- name: unready_in_use
SELECT s.type, s.id, s.fields FROM romancy.shapes s CROSS JOIN LATERAL (SELECT 1 FROM romancy.wait_keys y
  WHERE y.type = s.type AND y.shape = s.id ORDER BY y.key LIMIT 1) y WHERE NOT s.ready ORDER BY s.id
-- Waits that are already stored under the shape did not see all keys when they looked (only earlier versions store them
-- so early). Each gets a hint of the oldest event that it can take, so that it looks again. A mark set meanwhile may
-- have skipped events that had no key yet, so it is deleted. Later waits look later, and see all keys.
-- name: shape_is_ready
WITH now_ready AS (UPDATE romancy.shapes SET ready = true WHERE id = :id::integer AND NOT ready RETURNING id, type),
early AS MATERIALIZED (SELECT s.id AS shape, y.* FROM now_ready s CROSS JOIN LATERAL (SELECT y.type, y.key, y.instance, y.op
  FROM romancy.wait_keys y WHERE y.type = s.type AND y.shape = s.id ORDER BY y.key, y.follows, y.instance, y.alike, y.op) y),
unmarked AS (DELETE FROM romancy.marks m USING early y
  WHERE m.instance = y.instance AND m.type = y.type AND m.shape = y.shape AND m.key = y.key)
INSERT INTO romancy.deliveries (instance, event) SELECT DISTINCT k.instance, c.seq
FROM early y
CROSS JOIN LATERAL (SELECT w.instance, w.model, w.since, coalesce(w.born, i.born) AS born, i.trigger_xid, i.trigger_seq
  FROM romancy.waits w CROSS JOIN LATERAL (SELECT * FROM romancy.instances i WHERE i.id = w.instance OFFSET 0) i
  WHERE w.instance = y.instance AND w.op = y.op AND i.status < 9 OFFSET 0) k
CROSS JOIN LATERAL (SELECT x.seq FROM romancy.event_keys x CROSS JOIN LATERAL (SELECT 1 FROM romancy.events e
    WHERE e.seq = x.seq AND (e.target IS NULL OR e.target = k.instance) AND {free} OFFSET 0) e
  WHERE x.shape = y.shape AND x.key = y.key ORDER BY x.xid, x.seq LIMIT 1) c
ORDER BY 1, 2 ON CONFLICT DO NOTHING
-- name: untargeted_of_type
SELECT '' AS target, xid::text::bigint AS xid, seq, subject, source, data, attrs FROM romancy.events
WHERE type = :type::text AND target IS NULL AND (xid, seq) > (:xid::bigint::text::xid8, :seq::bigint)
ORDER BY target, xid, seq LIMIT :limit::integer
-- name: targeted_of_type
SELECT target, xid::text::bigint AS xid, seq, subject, source, data, attrs FROM romancy.events
WHERE type = :type::text AND (target, xid, seq) > (:target::text, :xid::bigint::text::xid8, :seq::bigint)
ORDER BY target, xid, seq LIMIT :limit::integer
-- In the same order as `dispatch`, so that two writers of the same keys can't deadlock.
-- name: insert_event_keys
INSERT INTO romancy.event_keys (shape, key, xid, seq) SELECT :shape::integer, x.key, x.xid::text::xid8, x.seq
FROM unnest(:keys::bytea[], :xids::bigint[], :seqs::bigint[]) AS x(key, xid, seq)
WHERE EXISTS (SELECT 1 FROM romancy.events e WHERE e.seq = x.seq)
ORDER BY x.key, x.xid, x.seq ON CONFLICT DO NOTHING

-- === a wait looks for events ===

-- ORDER BY target, though it is the same for all: otherwise the planner does not see that the index is in order.
-- Filtered waits also get `pending` events, whose keys are not written yet: the caller checks their data. They are read
-- once, not for each wait: their table is small, but it has many dead rows.
-- `whole`: the instances whose due looks are all among those asked. A look for one wait leaves the others due.
-- name: look
WITH alive AS MATERIALIZED (SELECT EXISTS (SELECT 1 FROM romancy.workers WHERE id = :worker::text) AS yes,
  set_config('synchronous_commit', 'off', true) AS unhurried),
asked AS MATERIALIZED (SELECT x.instance, x.op, i.born, i.trigger_xid, i.trigger_seq
  FROM alive, unnest(:instances::text[], :ops::text[]) AS x(instance, op),
    LATERAL (SELECT * FROM romancy.instances i WHERE i.id = x.instance OFFSET 0) i
  WHERE alive.yes AND i.owner IS NOT DISTINCT FROM :worker AND i.status < 9),
grouped AS MATERIALIZED (
  SELECT a.instance, a.op, a.born, a.trigger_xid, a.trigger_seq FROM asked a WHERE a.op IS NOT NULL
  UNION ALL
  SELECT a.instance, w.op, a.born, a.trigger_xid, a.trigger_seq FROM asked a CROSS JOIN LATERAL (SELECT min(w.op) AS op
    FROM romancy.waits w WHERE w.instance = a.instance AND w.spec <> ''
    GROUP BY w.model, w.spec, CASE WHEN w.born IS NULL AND w.since IS NULL THEN '' ELSE w.op END OFFSET 0) w
  WHERE a.op IS NULL),
k AS MATERIALIZED (SELECT DISTINCT ON (g.instance, g.op, y.type, y.shape, y.key)
    g.instance, g.op, w.model, w.spec, w.since, coalesce(w.born, g.born) AS born, g.trigger_xid, g.trigger_seq,
    y.type, y.shape, y.key, w.born IS NULL AND w.since IS NULL AS reaches_back, w.born::text AS own_born,
    CASE WHEN w.since IS NOT NULL THEN coalesce(pg_snapshot_xmin(w.born), '0'::xid8)
      ELSE greatest(pg_snapshot_xmin(coalesce(w.born, g.born)), m.xid) END AS floor_xid,
    CASE WHEN w.since IS NULL THEN greatest(
      CASE WHEN m.xid >= pg_snapshot_xmin(coalesce(w.born, g.born)) THEN m.seq ELSE 0 END,
      CASE WHEN g.trigger_xid = greatest(pg_snapshot_xmin(coalesce(w.born, g.born)), m.xid) THEN g.trigger_seq END)
      ELSE 0 END AS floor_seq
  FROM grouped g CROSS JOIN LATERAL (SELECT * FROM romancy.waits w WHERE w.instance = g.instance AND w.op = g.op OFFSET 0) w
  CROSS JOIN LATERAL (SELECT * FROM romancy.wait_keys y WHERE y.instance = g.instance AND y.op = g.op OFFSET 0) y
  LEFT JOIN LATERAL (SELECT * FROM romancy.marks m WHERE m.instance = g.instance AND m.type = y.type
    AND m.shape = y.shape AND m.key = y.key AND m.model = w.model OFFSET 0) m ON true),
found AS MATERIALIZED (SELECT DISTINCT ON (k.instance, k.op) k.instance, k.op, k.model, k.spec, k.reaches_back,
    c.xid, c.seq
  FROM k CROSS JOIN LATERAL (
    (SELECT e.xid, e.seq FROM romancy.events e
     WHERE k.shape = 0 AND e.type = k.type AND e.target IS NULL AND (e.xid, e.seq) > (k.floor_xid, k.floor_seq) AND {free}
     ORDER BY e.target, e.xid, e.seq LIMIT 1)
    UNION ALL
    (SELECT e.xid, e.seq FROM romancy.events e
     WHERE k.shape = 0 AND e.type = k.type AND e.target = k.instance AND (e.xid, e.seq) > (k.floor_xid, k.floor_seq)
       AND {free} ORDER BY e.target, e.xid, e.seq LIMIT 1)
    UNION ALL
    (SELECT y.xid, y.seq FROM romancy.event_keys y CROSS JOIN LATERAL (SELECT 1 FROM romancy.events e
       WHERE e.seq = y.seq AND (e.target IS NULL OR e.target = k.instance) AND {free} OFFSET 0) e
     WHERE k.shape > 0 AND y.shape = k.shape AND y.key = k.key AND (y.xid, y.seq) > (k.floor_xid, k.floor_seq)
     ORDER BY y.xid, y.seq LIMIT 1)
  ) c ORDER BY k.instance, k.op, c.xid, c.seq),
undispatched AS MATERIALIZED (SELECT e.* FROM romancy.undispatched u
  CROSS JOIN LATERAL (SELECT * FROM romancy.events e WHERE e.seq = u.event OFFSET 0) e),
pending AS MATERIALIZED (SELECT k.instance, k.op, array_agg(e.seq) AS events
  FROM k CROSS JOIN LATERAL (SELECT e.seq FROM undispatched e
    WHERE e.type = k.type AND (e.target IS NULL OR e.target = k.instance) AND {free} OFFSET 0) e
  WHERE k.shape > 0 GROUP BY k.instance, k.op),
scans AS MATERIALIZED (SELECT k.instance, k.op, array_agg(k.type) AS types FROM k WHERE k.shape < 0
  GROUP BY k.instance, k.op),
hinted AS (INSERT INTO romancy.deliveries (instance, event) SELECT DISTINCT instance, seq FROM found
  ORDER BY instance, seq ON CONFLICT DO NOTHING),
due AS MATERIALIZED (SELECT DISTINCT l.instance, l.xid FROM asked a CROSS JOIN LATERAL (
    SELECT l.instance, l.xmin::text AS xid FROM romancy.unlooked l WHERE l.instance = a.instance OFFSET 0) l
  WHERE a.instance = ANY(:whole::text[])),
looked AS (DELETE FROM romancy.unlooked l USING due d WHERE l.instance = d.instance AND l.xmin::text = d.xid
  AND NOT EXISTS (SELECT 1 FROM pending p WHERE p.instance = d.instance)
  AND NOT EXISTS (SELECT 1 FROM scans s WHERE s.instance = d.instance))
SELECT alive.yes, r.* FROM alive LEFT JOIN (
  SELECT k.instance, k.op, k.model, k.spec, k.reaches_back, f.xid::text::bigint AS xid,
    f.xid < pg_snapshot_xmin(pg_current_snapshot()) AS settled, p.events AS pending, s.types AS scans,
    {event}, d.xid AS due_xid, k.own_born, k.since
  FROM (SELECT DISTINCT instance, op, model, spec, reaches_back, own_born, since FROM k) k
  LEFT JOIN found f ON f.instance = k.instance AND f.op = k.op
  LEFT JOIN LATERAL (SELECT * FROM romancy.events e WHERE e.seq = f.seq OFFSET 0) e ON true
  LEFT JOIN pending p ON p.instance = k.instance AND p.op = k.op
  LEFT JOIN scans s ON s.instance = k.instance AND s.op = k.op
  LEFT JOIN due d ON d.instance = k.instance
  WHERE f.seq IS NOT NULL OR p.events IS NOT NULL OR s.types IS NOT NULL) r ON true
-- Whether a wait k can still take an event e, apart from type, filter, target and place.
-- Differs: the beginning of a wait is a snapshot here, a number there.
-- part: free
(k.since <= e.accepted_at OR k.since IS NULL AND NOT pg_visible_in_snapshot(e.xid, k.born)
    AND (k.trigger_seq IS NULL OR e.seq > k.trigger_seq OR e.xid <> k.trigger_xid))
  AND (e.expires_at IS NULL OR e.expires_at > :at::bigint)
  AND NOT EXISTS (SELECT 1 FROM romancy.consumed c WHERE c.instance = k.instance AND c.event = e.seq)
  AND NOT EXISTS (SELECT 1 FROM romancy.misfits f WHERE f.instance = k.instance AND f.model = k.model AND f.event = e.seq)
-- Differs: read page by page, because each statement is a transaction.
-- name: look_scan
SELECT e.xid::text::bigint AS xid, e.seq, e.subject, e.source, e.data, e.attrs
FROM romancy.instances i JOIN LATERAL (SELECT w.model, w.since, coalesce(w.born, i.born) AS born, i.trigger_xid,
    i.trigger_seq, w.instance FROM romancy.waits w WHERE w.instance = i.id AND w.op = :op::text OFFSET 0) k ON true
CROSS JOIN LATERAL (SELECT * FROM romancy.events e WHERE e.type = :type::text
  AND (e.target IS NULL OR e.target = k.instance) AND (e.xid, e.seq) > (:xid::bigint::text::xid8, :seq::bigint) AND {free}
  ORDER BY e.xid, e.seq LIMIT 200) e
WHERE i.id = :instance::text ORDER BY e.xid, e.seq
-- name: found_events
SELECT e.xid::text::bigint AS xid, {event} FROM romancy.events e WHERE e.seq = ANY(:seqs::bigint[])
-- name: hint
WITH hinted AS (INSERT INTO romancy.deliveries (instance, event)
  SELECT x.instance, x.event FROM unnest(:found_instances::text[], :found_events::bigint[]) AS x(instance, event)
  ON CONFLICT DO NOTHING)
DELETE FROM romancy.unlooked l USING unnest(:instances::text[], :due_xids::text[]) AS x(instance, xid)
WHERE l.instance = x.instance AND l.xmin::text = x.xid

-- === requests ===

-- A request to begin the next attempts now (9) is stored only if one waits.
-- name: insert_requests
INSERT INTO romancy.requests (instance, kind, payload, at, token, n)
SELECT x.instance, x.kind, x.payload, x.at, :token::bytea, x.n + :before::integer
FROM unnest(:instances::text[], :kinds::smallint[], :payloads::bytea[], :ats::bigint[]) WITH ORDINALITY
  AS x(instance, kind, payload, at, n)
CROSS JOIN LATERAL (SELECT status FROM romancy.instances i WHERE i.id = x.instance OFFSET 0) i
WHERE i.status < 10 AND {outdated} IS NULL AND (x.kind <> 9 OR i.status < 9 AND EXISTS (SELECT 1 FROM romancy.attempts a
  WHERE a.instance = x.instance AND {can_hasten} AND a.next_due > x.at))
ORDER BY x.n ON CONFLICT (token, n) DO NOTHING RETURNING n
-- The same, if somebody made some of them by name.
-- name: insert_named_requests
WITH given AS MATERIALIZED (SELECT x.*, i.created_at
  FROM unnest(:instances::text[], :kinds::smallint[], :payloads::bytea[], :ats::bigint[], :whos::text[])
    WITH ORDINALITY AS x(instance, kind, payload, at, who, n)
  CROSS JOIN LATERAL (SELECT status, created_at FROM romancy.instances i WHERE i.id = x.instance OFFSET 0) i
  WHERE i.status < 10 AND {outdated} IS NULL AND (x.kind <> 9 OR i.status < 9 AND EXISTS (SELECT 1 FROM romancy.attempts a
    WHERE a.instance = x.instance AND {can_hasten} AND a.next_due > x.at))),
asked AS (INSERT INTO romancy.requests (instance, kind, payload, at, token, n)
  SELECT instance, kind, payload, at, :token::bytea, n + :before::integer FROM given ORDER BY n
  ON CONFLICT (token, n) DO NOTHING RETURNING n),
acts AS (INSERT INTO romancy.acts (instance, at, verb, who)
  SELECT g.instance, greatest(g.at, g.created_at), CASE g.kind WHEN 9 THEN 'retry now' ELSE 'cancel' END, g.who FROM given g
  WHERE g.who IS NOT NULL AND g.n + :before IN (SELECT n FROM asked) ORDER BY g.n)
SELECT n FROM asked
-- A blocked instance has no code that could clean up; one that never ran has nothing to clean up.
-- Its parent is told, and the children that it awaited are asked to cancel.
-- The error keeps what is not undone, which is the last member of the error of an instance blocked by its undos.
-- Differs: several in one statement, with all their rows.
-- name: cancel_at_once
WITH cancelled AS (UPDATE romancy.instances i SET status = 12, owner = NULL, version = version + 1, finished_at = x.at,
    updated_at = x.at, builds = NULL, error = CASE WHEN position('"not_undone": ['::bytea IN i.error) > 0
      THEN substring(x.error FROM 1 FOR length(x.error) - 1) || ', '::bytea
        || substring(i.error FROM position('"not_undone": ['::bytea IN i.error))
      ELSE x.error END
  FROM unnest(:instances::text[], :ats::bigint[], :errors::bytea[], :reasons::bytea[]) AS x(instance, at, error, reason)
  WHERE i.id = ANY(:instances) AND i.id = x.instance AND (i.status = 9 AND :blocked::boolean OR i.status = 1 AND i.owner IS NULL AND i.version = 0
    OR i.status = 8 AND NOT EXISTS (SELECT 1 FROM romancy.history h WHERE h.instance = i.id))
  RETURNING i.id, i.parent, i.parent_op, x.error, i.finished_at, i.token, x.reason),
asked AS (INSERT INTO romancy.requests (instance, kind, payload, at, token, n)
  SELECT i.id, 6, c.reason, c.finished_at, sha256(c.token || convert_to(c.id || ' ' || i.id, 'UTF8')), 0
  FROM cancelled c CROSS JOIN LATERAL (SELECT i.id FROM romancy.instances i
    WHERE i.parent = c.id AND i.parent_op IS NOT NULL AND i.status < 10 AND i.is_free IS NULL OFFSET 0) i
  ON CONFLICT (token, n) DO NOTHING RETURNING instance),
letters AS (INSERT INTO romancy.requests (instance, kind, payload, at, token, n, op)
  SELECT c.parent, 5, c.error, c.finished_at, sha256(c.token || convert_to(c.id, 'UTF8')), 0, c.parent_op
  FROM cancelled c CROSS JOIN LATERAL (SELECT status FROM romancy.instances p WHERE p.id = c.parent OFFSET 0) p
  WHERE p.status < 10 ON CONFLICT (token, n) DO NOTHING RETURNING instance),
d AS (DELETE FROM romancy.deliveries WHERE instance IN (SELECT id FROM cancelled)),
r AS (DELETE FROM romancy.requests WHERE instance IN (SELECT id FROM cancelled)),
a AS (DELETE FROM romancy.attempts WHERE instance IN (SELECT id FROM cancelled)),
u AS (DELETE FROM romancy.unlooked WHERE instance IN (SELECT id FROM cancelled)),
k AS (DELETE FROM romancy.wait_keys WHERE instance IN (SELECT id FROM cancelled)),
w AS (DELETE FROM romancy.waits WHERE instance IN (SELECT id FROM cancelled))
SELECT p.owner FROM (SELECT instance FROM letters UNION ALL SELECT instance FROM asked) l
CROSS JOIN LATERAL (SELECT owner FROM romancy.instances p WHERE p.id = l.instance OFFSET 0) p
-- An instance that ended exactly at the time of the request was cancelled by it, perhaps in an earlier submission.
-- name: request_answers
SELECT x.n, i.status, CASE WHEN o.id IS NULL THEN i.owner END AS owner, r.id,
  coalesce(r.id IS NOT NULL OR (i.status = 12 AND i.finished_at = x.at), false) AS took
FROM unnest(:instances::text[], :ats::bigint[]) WITH ORDINALITY AS x(instance, at, n)
CROSS JOIN LATERAL (SELECT * FROM romancy.instances i WHERE i.id = x.instance OFFSET 0) i
LEFT JOIN romancy.requests r ON r.token = :token::bytea AND r.n = x.n + :before::integer
LEFT JOIN romancy.orphans o ON o.id = i.owner
-- Also deletes the record of worker deaths. Locked in the order of ids, so that two of them can't block each other.
-- `coalesce` keeps the planner from reading all blocked instances.
-- Differs: one statement, because each statement is a transaction.
-- name: resume_blocked
WITH blocked AS MATERIALIZED (SELECT id FROM romancy.instances WHERE id = ANY(:ids::text[])
  AND coalesce(status, 0) = 9 AND {outdated} IS NULL ORDER BY id FOR NO KEY UPDATE),
resumed AS (UPDATE romancy.instances i SET status = 1, owner = NULL, version = version + 1, error = NULL, builds = NULL
  FROM blocked b WHERE i.id = b.id RETURNING i.id, i.created_at),
acts AS (INSERT INTO romancy.acts (instance, at, verb, who)
  SELECT id, greatest(:at::bigint, created_at), 'resume', :who::text FROM resumed WHERE :who IS NOT NULL),
body AS (DELETE FROM romancy.attempts a USING resumed r WHERE a.instance = r.id AND a.op = ''),
calls AS (UPDATE romancy.attempts a SET crashes = 0, started = false, next_due = NULL, suspected_at = NULL
  FROM resumed r WHERE a.instance = r.id AND a.op <> '' AND (a.crashes > 0 OR a.suspected_at IS NOT NULL))
SELECT id FROM resumed
-- A copy of an instance, which has taken what its original took before the cut, also in earlier runs. One that has undone
-- its steps can only begin again. It has run: what it does may have to be undone if it is cancelled.
-- name: fork
WITH made AS (INSERT INTO romancy.instances (id, workflow, status, version, token, birth, born, trigger_xid, trigger_seq,
    input, input_kind, deadline, created_at, updated_at, generation, base, began_at, limited_from, seed,
    schedule, scheduled_at, queue, queue_key, priority)
  SELECT :id::text, e.workflow, CASE WHEN e.queue IS NULL THEN 1 ELSE 8 END, 1, :token::bytea, :token, e.born, e.trigger_xid,
    e.trigger_seq, coalesce(:input::bytea, e.input), e.input_kind,
    :at::bigint + e.deadline - coalesce(e.limited_from, e.began_at, e.created_at), :at, :at,
    CASE WHEN :cut::bigint = 0 THEN 0 ELSE e.generation END, CASE WHEN :cut = 0 THEN 0 ELSE e.base END,
    CASE WHEN :cut > 0 THEN coalesce(e.began_at, e.created_at) END, :at, :seed::text, e.schedule, e.scheduled_at,
    e.queue, e.queue_key, e.priority
  FROM romancy.instances e WHERE e.id = :origin::text AND {outdated} IS NULL AND e.generation = :generation::bigint
    AND (:cut = 0 OR NOT {undone})
  ON CONFLICT (id) DO NOTHING RETURNING id),
entries AS (INSERT INTO romancy.history (instance, n, kind, op, at, input, payload, event)
  SELECT m.id, h.n, h.kind, h.op, h.at, coalesce(x.input, h.input), coalesce(x.payload, h.payload), h.event
  FROM made m CROSS JOIN unnest(:numbers::bigint[], :inputs::bytea[], :payloads::bytea[]) AS x(n, input, payload)
  CROSS JOIN LATERAL (SELECT * FROM romancy.history h WHERE h.instance = :origin AND h.n = x.n OFFSET 0) h),
consumed AS (INSERT INTO romancy.consumed (instance, event, op) SELECT m.id, c.event, c.op FROM made m, romancy.consumed c
  WHERE c.instance = :origin AND c.event NOT IN (SELECT h.event FROM romancy.history h, romancy.instances o
    WHERE o.id = :origin AND h.instance = :origin AND h.n > greatest(o.base, :cut) AND h.event IS NOT NULL)),
acts AS (INSERT INTO romancy.acts (instance, at, verb, who) SELECT id, :at, 'fork', :who::text FROM made WHERE :who IS NOT NULL),
headers AS (INSERT INTO romancy.headers (instance, headers)
  SELECT m.id, h.headers FROM made m, romancy.headers h WHERE h.instance = :origin
  ON CONFLICT (instance) DO UPDATE SET headers = excluded.headers),
asked AS (INSERT INTO romancy.requests (instance, kind, payload, at, token, n)
  SELECT id, 7, :ask::bytea, :at, :token, 0 FROM made WHERE :cut > 0)
SELECT id FROM made
-- part: undone
EXISTS (SELECT 1 FROM romancy.history h WHERE h.instance = e.id AND h.n > e.base AND h.op COLLATE "C" >= 'undo '
  AND h.op COLLATE "C" < 'undo!')
-- Reopens instances that failed or were cancelled, unless they have undone their steps. The time limit of a run begins
-- again. Earlier requests are deleted: they were for the end, and may have come just after it. One that had to be waited
-- for may have been retried in between and have ended again. Its history is seen as it was before that, so it is `stale`.
-- name: reopen
WITH ended AS MATERIALIZED (SELECT id, error, base, version FROM romancy.instances WHERE id = ANY(:ids::text[])
  AND coalesce(status, 0) IN (11, 12) AND {outdated} IS NULL ORDER BY id FOR NO KEY UPDATE),
reopened AS (UPDATE romancy.instances i SET status = CASE WHEN i.queue IS NULL THEN 1 ELSE 8 END, owner = NULL, version = i.version + 1, finished_at = NULL,
    output = NULL, error = NULL, updated_at = :at::bigint, limited_from = :at,
    deadline = :at + i.deadline - coalesce(i.limited_from, i.began_at, i.created_at)
  FROM ended e WHERE i.id = e.id AND i.version = e.version AND NOT {undone}
  RETURNING i.id, e.error, i.created_at),
acts AS (INSERT INTO romancy.acts (instance, at, verb, who)
  SELECT id, greatest(:at, created_at), 'retry', :who::text FROM reopened WHERE :who IS NOT NULL),
earlier AS (DELETE FROM romancy.requests r USING reopened o WHERE r.instance = o.id),
asked AS (INSERT INTO romancy.requests (instance, kind, payload, at, token, n)
  SELECT id, 7, :head::bytea || coalesce(error, ''), :at, :token::bytea, row_number() OVER (ORDER BY id) FROM reopened)
SELECT id, false AS stale FROM reopened UNION ALL
SELECT e.id, true FROM ended e JOIN romancy.instances i ON i.id = e.id WHERE i.version <> e.version

-- === schedules ===

-- Advance a schedule and start its tick, in one commit, so that no tick is missed or started twice: the stamp is the one
-- that was read, the id says which tick it is, and the worker still has its lease. Each instance was inserted together
-- with a new stamp: if the stamp is still the one that was read, all of them are visible here, and whether one is open.
-- name: fire_schedule
WITH fence AS MATERIALIZED (SELECT id FROM romancy.workers WHERE id = :worker::text FOR KEY SHARE),
busy AS MATERIALIZED (SELECT i.id FROM romancy.instances i WHERE i.schedule = :name::text AND {not_ended} LIMIT 1),
fate AS MATERIALIZED (SELECT :id::text IS NOT NULL AND NOT (:yields::boolean AND EXISTS (SELECT 1 FROM busy)) AS starts,
    CASE WHEN :mine::boolean THEN fence.id END AS owner FROM fence WHERE NOT (:waits::boolean AND EXISTS (SELECT 1 FROM busy))),
won AS (UPDATE romancy.schedules s SET next_at = :next_at::bigint, due_at = :due_at::bigint, done_at = :done_at::bigint,
    former = :former::text, last_at = CASE WHEN f.starts THEN :tick::bigint ELSE s.last_at END,
    last_instance = CASE WHEN f.starts THEN :id ELSE s.last_instance END,
    started = s.started + f.starts::integer, error = NULL, stamp = :stamp::bytea,
    skipped = s.skipped + :skipped::bigint + (:id IS NOT NULL AND NOT f.starts)::integer
  FROM fate f WHERE s.name = :name AND s.stamp = :seen::bytea AND NOT s.paused
  RETURNING s.name, s.workflow, s.input, s.input_kind, s.timeout, s.attributes, f.starts, f.owner, :queue::text AS queue,
    :queue_key::text AS queue_key, :priority::integer AS priority),
{insert_scheduled}
SELECT starts FROM won
-- Start an instance now, whatever else the schedule says.
-- name: trigger_schedule
WITH won AS (UPDATE romancy.schedules s SET last_at = :tick::bigint, last_instance = :id::text, started = s.started + 1,
    stamp = :stamp::bytea
  WHERE s.name = :name::text AND NOT EXISTS (SELECT 1 FROM romancy.instances WHERE id = :id) AND {outdated} IS NULL
  RETURNING s.name, s.workflow, s.input, s.input_kind, s.timeout, s.attributes, true AS starts,
    NULL::text AS owner, s.queue, s.queue_key, s.priority),
{insert_scheduled},
acts AS (INSERT INTO romancy.acts (instance, at, verb, who) SELECT id, :at, 'start', :who::text FROM begun WHERE :who IS NOT NULL)
SELECT workflow FROM won
-- part: insert_scheduled
begun AS (INSERT INTO romancy.instances (id, workflow, status, owner, token, birth, born, input, input_kind, deadline, created_at,
    updated_at, schedule, scheduled_at, queue, queue_key, priority)
  SELECT :id, w.workflow, CASE WHEN w.queue IS NULL THEN 1 ELSE 8 END, w.owner, :stamp, :stamp, pg_current_snapshot(), w.input,
    w.input_kind, :at::bigint + w.timeout, :at, :at, w.name, :tick, w.queue, w.queue_key, w.priority FROM won w WHERE w.starts ON CONFLICT (id) DO NOTHING RETURNING id),
begun_attributes AS (INSERT INTO romancy.attributes (instance, name, value, created_at)
  SELECT b.id, a.key, a.value, :at FROM begun b, won w, json_each_text(w.attributes::json) a ON CONFLICT DO NOTHING)
