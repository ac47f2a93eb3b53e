-- What instances emit, on SQLite.

-- name: insert_emission
INSERT INTO romancy.emissions (instance, seq, topic, n, count, kind, op, run, at, size, data)
VALUES (:instance, :seq, :topic, :n, :count, :kind, :op, :run, :at, :size, :data)
-- Rows that are there were stored by an earlier submission.
-- name: emit
INSERT INTO romancy.emissions (instance, seq, topic, n, count, kind, op, run, at, size, data)
VALUES (:instance, :seq, :topic, :n, :count, :kind, :op, :run, :at, :size, :data) ON CONFLICT DO NOTHING
-- name: may_emit
SELECT 1 FROM romancy.instances WHERE id = :instance AND owner = :worker AND status < 9
-- name: emission_at
SELECT instance, seq, topic, n, count, kind, op, run, at, size, data FROM romancy.emissions
WHERE instance = :instance AND seq = :seq
-- name: emission_standing
SELECT o.instance, o.topic, o.op, o.run,
  (SELECT e.n + e.count - 1 FROM romancy.emissions e INDEXED BY romancy.emissions_topic
    WHERE e.instance = o.instance AND e.topic = o.topic ORDER BY e.n DESC LIMIT 1),
  (SELECT e.size FROM romancy.emissions e INDEXED BY romancy.emissions_topic
    WHERE e.instance = o.instance AND e.topic = o.topic ORDER BY e.n DESC LIMIT 1),
  (SELECT e.seq + e.count - 1 FROM romancy.emissions e WHERE e.instance = o.instance ORDER BY e.seq DESC LIMIT 1)
FROM (SELECT e.instance, e.topic, e.op, max(e.run) AS run FROM romancy.emissions e INDEXED BY romancy.emissions_runs
  WHERE e.instance = :instance AND e.kind > 0 GROUP BY e.instance, e.topic, e.op) o
-- The row with the first value that is wanted may begin before it.
-- name: emissions_of_topic
SELECT instance, seq, topic, n, count, kind, op, run, at, size, data FROM romancy.emissions INDEXED BY romancy.emissions_topic
WHERE instance = :instance AND topic = :topic AND n >= coalesce((SELECT e.n FROM romancy.emissions e
    WHERE e.instance = :instance AND e.topic = :topic AND e.n <= :after + 1 ORDER BY e.n DESC LIMIT 1), 0)
  AND n + count - 1 > :after ORDER BY n LIMIT :limit
-- name: emissions_of_instance
SELECT instance, seq, topic, n, count, kind, op, run, at, size, data FROM romancy.emissions
WHERE instance = :instance AND seq >= coalesce((SELECT e.seq FROM romancy.emissions e
    WHERE e.instance = :instance AND e.seq <= :after + 1 ORDER BY e.seq DESC LIMIT 1), 0)
  AND seq + count - 1 > :after ORDER BY seq LIMIT :limit
-- name: emission_topics
SELECT t.topic, e.n + e.count - 1, e.at
FROM (SELECT DISTINCT topic FROM romancy.emissions INDEXED BY romancy.emissions_runs WHERE instance = :instance AND kind > 0) t
JOIN romancy.emissions e INDEXED BY romancy.emissions_topic ON e.instance = :instance AND e.topic = t.topic
  AND e.n = (SELECT max(l.n) FROM romancy.emissions l WHERE l.instance = :instance AND l.topic = t.topic)
ORDER BY t.topic
-- name: ended_instances
SELECT finished_at, id FROM romancy.instances WHERE finished_at >= :since AND finished_at < :before
  AND (finished_at > :since OR id > :id) ORDER BY finished_at, id LIMIT :limit
-- The last row of each topic stays, without its values.
-- name: hollow_emissions
UPDATE romancy.emissions SET kind = 3, data = x'' WHERE instance = :instance AND kind <> 3
  AND NOT EXISTS (SELECT 1 FROM romancy.emissions l
    WHERE l.instance = romancy.emissions.instance AND l.topic = romancy.emissions.topic AND l.n > romancy.emissions.n)
-- name: remove_emissions
DELETE FROM romancy.emissions WHERE instance = :instance AND seq IN (SELECT e.seq FROM romancy.emissions e
  WHERE e.instance = :instance AND e.kind <> 3 ORDER BY e.seq LIMIT :limit)
-- name: delete_emissions
DELETE FROM romancy.emissions WHERE instance = :instance AND seq IN (SELECT e.seq FROM romancy.emissions e
  WHERE e.instance = :instance ORDER BY e.seq LIMIT :limit)
