"""The HTTP interface on one page.

An `App` is an ASGI application, and this package answers its requests. `asgi` takes a request, `access` decides whether
it is allowed, and its *route* handles it. A route is declared once; the dispatcher, the checks and `/openapi.json` all
use that declaration. For an event, `events` reads the body (with `body`, within limits), `cloudevents` parses it, and
`backpressure` waits, within limits, until the engine has stored it. Only then does `responses` answer 202.

    asgi.py      the entry point: requests in, answers out
    lifespan.py  an app starts and stops with its server
    access.py    tokens and scopes; the checks for an app without tokens
    peers.py     where a request comes from: this machine, a proxy, a web page
    sessions.py  sessions of the viewer's visitors
    body.py      headers and body of a request, within limits
    message_length.py  where a request ends; refuses ambiguous requests
    cloudevents/ bytes to events
    events.py    `POST /`
    handshake.py  `OPTIONS /`, the handshake of CloudEvents senders
    webhooks.py  `POST /webhooks/{name}`, deliveries of other systems
    wrong_tokens.py  counts wrong tokens, and delays their answers
    quotas.py    how much one token can send per minute
    traffic.py   counters for /metrics; the limit on connections
    backpressure.py  writes on their way to the database, bounded in time and amount
    time_limits.py  how long a request can wait for something
    responses.py answers, and the status of each error
    routes.py    routes, and how a path finds its route
    control.py   the control API
    schedules.py  the same for schedules
    emissions.py what instances emit, as streams and pages
    inbox.py     `GET /api/inbox`
    questions.py  questions to people
    sinks.py     sinks, and the events that they gave up
    workers.py   workers, and attempts that begin now
    stream.py    `GET /api/stream`, live changes
    health.py    the routes for monitoring
    schemas.py   input and output of routes
    constraints.py  constraints on texts and events, as JSON Schema
    serialize.py the app's records as JSON
    pages.py     pages of a list, limited in bytes
    metrics.py   `GET /metrics`
    openapi.py   the OpenAPI description of the routes
    server.py    the server behind `romancy serve`
    listener.py  its address
    uvicorn_limits.py   its limits for slow clients and endless headers
    uvicorn_parsers.py  its two parsers, each without its weakness
    uvicorn_writes.py   its answers, each sent in one go
"""
