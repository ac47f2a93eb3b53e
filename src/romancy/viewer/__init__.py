"""The viewer on one page: see who waits for what, since when, until when, and act on it.

Pages are made on the server from templates; a little JavaScript makes them live and keeps them quick to use. They read
through the `Catalog` and nothing else, and act through the control API, as any other client does, in the visitor's
session. Every value is escaped by the templates; the Content-Security-Policy allows nothing inline.

    routes.py     which page is where
    pages.py      what is on each page
    action_pages.py  the pages with forms: start a workflow, send an event
    session.py    logging in and out
    catalog.py    what pages read
    values.py     stored values, and the beginning of long ones
    spans.py      a history as bars on a timeline, with when each began
    attempts.py   the attempts of an activity, as pieces of its bar
    forms.py      a workflow's signature as a form; a model's fields; the source of a function
    html.py       templates, static files, headers
    words.py      times and values as people read them
    templates/    HTML, one file a page
    static/       one style sheet, ES modules
"""
