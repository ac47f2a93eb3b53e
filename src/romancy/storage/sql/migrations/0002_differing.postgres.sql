-- min_reader: 1
-- When an event with this source and id, but other content, was first sent and dropped; null: never. A nullable column
-- without a default is added at once, however long the log is.

ALTER TABLE events ADD COLUMN differed_at bigint;
