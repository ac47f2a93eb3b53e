-- The inbox on PostgreSQL.
--
-- A move is a group commit with the pieces below. The order of acceptance must be that of the inbox, and two workers may
-- move at the same time: with row locks alone, one could accept the second event before the other accepts the first. So
-- they take turns (`turn`), and everything else depends on that, the number of the transaction included. The snapshot is
-- older than the turn, but that is no harm: rows that another worker has moved meanwhile are gone when they are locked,
-- and then nothing is stored (`still`). What it does not see yet announces itself.

-- Run by callers, in their own transactions. It stores nothing if it is not in a transaction block, where the time of
-- the transaction is that of its first statement, or if this is another database. The notice reaches workers after the
-- commit.
-- Differs: it can check where it is, and notify.
-- name: leave
INSERT INTO romancy.inbox (kind, at, source, event, type, subject, time, target, attrs, data, expires_at, instance,
  workflow, input_kind, deadline, options)
SELECT :kind::smallint, :at::bigint, :source::text, :event::text, :type::text, :subject::text, :time::bigint,
  :target::text, :attrs::bytea, :data::bytea, :expires_at::bigint, :instance::text, :workflow::text,
  :input_kind::smallint, :deadline::bigint, :options::text
FROM {identity}
WHERE statement_timestamp() <> transaction_timestamp() AND place.identity = :identity::text
  AND (:channel::text IS NULL OR pg_notify(:channel::text, '')::text IS NOT NULL)
-- The same for the copies of a server and for its standbys, but not for its other databases.
-- part: identity
(SELECT current_database() || ' ' || s.system_identifier AS identity FROM pg_control_system() s) AS place
-- name: identity
SELECT identity FROM {identity}

-- part: write_moved
turn AS MATERIALIZED (SELECT pg_advisory_xact_lock(1919905121, 'romancy.inbox'::regclass::oid::integer)),
held AS MATERIALIZED (SELECT b.id, b.instance FROM turn, romancy.inbox b
  WHERE b.id = ANY(:moved::bigint[]) AND b.refused IS NULL ORDER BY b.id FOR UPDATE OF b),
still AS MATERIALIZED (SELECT count(*) = cardinality(:moved) AS ok FROM held)
-- Starts whose id is taken stay until it is known whether by the same start.
-- part: write_left
gone AS (DELETE FROM romancy.inbox b USING held h, still
  WHERE b.id = h.id AND still.ok AND (h.instance IS NULL OR h.instance IN ({moved_starts})))
-- part: starts_moved
SELECT id FROM started
-- part: queued_moved
SELECT id FROM queued
-- part: no_starts_moved
SELECT NULL
-- part: result_moved
(SELECT ok FROM still) AS moved
-- part: startable_always
-- part: startable_moved
WHERE (SELECT ok FROM still)
-- part: queueable_always
-- part: queueable_moved
AND (SELECT ok FROM still)
-- part: sent_by_guests
(SELECT ok FROM still)
-- Locked in the order of moves, so that it can't deadlock with one.
-- name: settle_starts
WITH held AS MATERIALIZED (SELECT id FROM romancy.inbox
  WHERE id = ANY(:known::bigint[]) OR id = ANY(:refused::bigint[]) ORDER BY id FOR UPDATE),
known AS (DELETE FROM romancy.inbox b USING held h WHERE b.id = h.id AND b.id = ANY(:known))
UPDATE romancy.inbox b SET refused = x.reason, refused_at = :at::bigint FROM held h, unnest(:refused, :reasons::text[]) AS x(id, reason)
WHERE b.id = h.id AND b.id = x.id
