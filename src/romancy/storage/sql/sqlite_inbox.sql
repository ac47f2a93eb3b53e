-- The inbox on SQLite, where a move is a transaction of several statements.

-- Run by callers, on their own connections: hence the database, because a temporary table may have the same name.
-- Differs: where a new instance begins.
-- name: leave
INSERT INTO main.romancy.inbox (kind, at, source, event, type, subject, time, target, attrs, data, expires_at, instance,
  workflow, input_kind, deadline, options, seen)
SELECT :kind, :at, :source, :event, :type, :subject, :time, :target, :attrs, :data, :expires_at, :instance, :workflow,
  :input_kind, :deadline, :options, (SELECT coalesce(max(seq), 0) FROM main.romancy.events)
-- name: count_to_move
SELECT count(*) FROM romancy.inbox WHERE refused IS NULL AND id IN (SELECT value FROM json_each(:ids))
-- name: delete_moved
DELETE FROM romancy.inbox WHERE id = :id
-- name: refuse_start
UPDATE romancy.inbox SET refused = :reason, refused_at = :at WHERE id = :id
