"""Tools that work on a database without starting an app: `romancy migrate`, `romancy copy` and `romancy doctor`.

migration.py     shows the version of a schema, and brings it up to date
copy/            copies from SQLite to PostgreSQL
file_state.py    reads the state of a SQLite file
server_state.py  reads the state of a PostgreSQL server, and what its user is allowed to do
"""
