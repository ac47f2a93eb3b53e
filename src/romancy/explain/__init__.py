"""Explanations for people.

near_misses.py  why a wait did not take an event that seems to fit
ownership.py    which worker runs an instance
"""
