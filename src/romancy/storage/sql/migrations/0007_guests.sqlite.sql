-- min_reader: 7
-- From here on, tables and indexes have the prefix "romancy_", so that the file may hold tables of the user's own. Those
-- of earlier versions are renamed before the migrations run (sqlite/migrations.py).

SELECT 1
