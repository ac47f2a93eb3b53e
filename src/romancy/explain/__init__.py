"""Explanations for people.

near_misses.py  why a wait did not take an event that seems to fit
origins.py      which schedule started an instance
ownership.py    which worker runs an instance
"""
