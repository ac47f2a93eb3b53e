"""The HTTP face on one page.

An `App` is an ASGI application, and this is what answers. A request is let in by `asgi`, if `access` says that it may,
and goes to its *route*: one declaration, of which the dispatcher, the checks and `/openapi.json` are made. An event's
way in: `ingress` reads the body (`body`, within limits), has `cloudevents` make events of it, and gives them to
`intake`, which waits, within limits, until the engine has stored them. Only then does `answers` say 202.

    asgi.py      the door: lifespan; every request in, every answer out
    access.py    tokens and scopes; who is let in without tokens
    peers.py     where a request comes from: this machine, a proxy, whose web page
    sessions.py  the viewer's visitors who are logged in
    body.py      a request's headers and body, within limits
    framing.py   where a request ends: what is ambiguous about that is refused
    cloudevents/ bytes to events
    ingress.py   `POST /`
    webhook.py   `OPTIONS /`, the handshake of webhook senders
    guessing.py  wrong tokens
    quotas.py    how much one token may bring in a minute
    traffic.py   what comes in, counted; how many connections there may be
    intake.py    writes on their way to the database, bounded in time and amount
    answers.py   what goes out; which error is which status
    routes.py    what a route is, and how a path finds it
    control.py   the routes that look and act
    stream.py    `GET /api/stream`, what changes as it changes
    health.py    the routes for whoever watches the process
    schemas.py   what goes in and out of routes
    constraints.py  what is asked of texts and events, as JSON Schema
    showing.py   the app's records as they go out
    openapi.py   the routes described
    server.py    the server behind `romancy serve`
    patience.py  its limits for slow clients and endless headers
    parsing.py   uvicorn's two parsers, each without its weakness
"""
