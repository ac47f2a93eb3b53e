"""A client for the HTTP face of an app: the same verbs, and the same errors, from another process.

client.py    the verbs
events.py    events on their way out
handle.py    one instance on a server
wire.py      requests, repeated while that may help; the one place that knows httpx
requests.py  where a request goes, and a workflow's arguments as JSON
retries.py   when to try again
responses.py what a server says, as records and errors
"""

from romancy.client.client import Client
from romancy.client.handle import RemoteHandle

__all__ = ["Client", "RemoteHandle"]
