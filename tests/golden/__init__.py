"""Histories written by released versions, and the code that wrote them. Both stay as they are: see `test_golden.py`."""
