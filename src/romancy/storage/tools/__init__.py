"""What is done to a database without starting an app: `romancy migrate` and `romancy copy`.

migration.py  the version of a schema, and bringing it up to date
copy/         from SQLite to PostgreSQL
"""
