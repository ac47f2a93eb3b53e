-- min_reader: 2
-- From here on, waits that no index covers are filed under an anchor (core/matching.py). Older workers would not find them.

-- When an event with this source and id, but other content, was first sent and dropped; NULL: never.

ALTER TABLE romancy.events ADD COLUMN differed_at INTEGER;
