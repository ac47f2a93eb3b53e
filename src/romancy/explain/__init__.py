"""Explanations for people: why an instance waits, and who runs it."""
