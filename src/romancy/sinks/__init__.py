"""Sinks: where the events that this app sends go, beyond its own workflows.

declaration.py  `HTTPSink` and `Sink`, as users write them
posts.py        HTTP posts: connections, what is sent, and what counts as delivered
"""
