-- min_reader: 1
-- When an event with this source and id, but other content, was first sent and dropped; NULL: never.

ALTER TABLE events ADD COLUMN differed_at INTEGER;
