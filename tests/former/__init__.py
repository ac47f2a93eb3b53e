"""Databases as former releases left them. They are brought up to date and go on, with every later release.

workflows.py   what runs in them; written with what all these releases have
recorder.py    `python -m tests.former.recorder FILE`, run with the release that a database is to be from
0005.sql       SQLite, schema 5: before children, continuing as new and retries
"""
