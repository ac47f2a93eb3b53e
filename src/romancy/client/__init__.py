"""A client for the HTTP API of an app: the same verbs and errors, from another process.

client.py    the verbs
outside.py   the verbs for the inbox, questions, sinks and workers
events.py    events to send
emissions.py what an instance emits
handle.py    one instance on a server
wire.py      requests and retries; it uses httpx2
former.py    transports of httpx, which httpx2 succeeds
requests.py  URLs, and a workflow's arguments as JSON
retries.py   when to try again
responses.py answers of a server as records and errors
"""

from romancy.client.client import Client
from romancy.client.handle import RemoteHandle

__all__ = ["Client", "RemoteHandle"]
