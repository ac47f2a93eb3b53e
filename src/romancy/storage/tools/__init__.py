"""Tools that work on a database without starting an app: `romancy migrate` and `romancy copy`.

migration.py  shows the version of a schema, and brings it up to date
copy/         copies from SQLite to PostgreSQL
"""
