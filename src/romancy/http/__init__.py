"""The HTTP face on one page.

An `App` is an ASGI application, and this is what answers. A request is let in by `asgi`, if `access` says that it may,
and goes to its *route*: one declaration, of which the dispatcher, the checks and `/openapi.json` are made. An event's
way in: `events` reads the body (`body`, within limits), has `cloudevents` make events of it, and gives them to
`backpressure`, which waits, within limits, until the engine has stored them. Only then does `responses` say 202.

    asgi.py      the door: lifespan; every request in, every answer out
    access.py    tokens and scopes; who is let in without tokens
    peers.py     where a request comes from: this machine, a proxy, whose web page
    sessions.py  the viewer's visitors who are logged in
    body.py      a request's headers and body, within limits
    message_length.py  where a request ends: ambiguous requests are refused
    cloudevents/ bytes to events
    events.py    `POST /`
    webhook.py   `OPTIONS /`, the handshake of webhook senders
    wrong_tokens.py  counts them, and slows down those who send them
    quotas.py    how much one token may bring in a minute
    traffic.py   what comes in, counted; how many connections there may be
    backpressure.py  writes on their way to the database, bounded in time and amount
    responses.py what goes out; which error is which status
    routes.py    what a route is, and how a path finds it
    control.py   the routes that look and act
    stream.py    `GET /api/stream`, what changes as it changes
    health.py    the routes for monitoring
    schemas.py   what goes in and out of routes
    constraints.py  what is asked of texts and events, as JSON Schema
    serialize.py the app's records as JSON
    pages.py     pages of a list, limited in bytes
    metrics.py   `GET /metrics`
    openapi.py   the routes described
    server.py    the server behind `romancy serve`
    uvicorn_limits.py   its limits for slow clients and endless headers
    uvicorn_parsers.py  its two parsers, each without its weakness
"""
