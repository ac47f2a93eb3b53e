-- min_reader: 6
-- Nothing changes here: on SQLite, this version gives tables a prefix.

SELECT 1;
