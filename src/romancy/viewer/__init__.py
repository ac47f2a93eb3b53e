"""The viewer on one page: shows what each instance waits for, since when and until when, and lets people act on it.

The server renders pages from templates, and a little JavaScript updates them live. Pages read only through the
`Catalog`. Actions go through the control API, as for any other client, in the visitor's session. The templates escape
every value; the Content-Security-Policy allows nothing inline.

    routes.py     the routes of all pages
    now.py        the front page, and the lists of what is retried and overdue
    charts.py     numbers by the minute as small charts
    pages.py      the pages that show things
    instance_page.py  the page of one instance, and the download of its history
    schedules.py  the page of schedules
    kept_aside.py the pages of the inbox, of old events that are kept, and of sinks
    queues.py     the page of queues
    action_pages.py  the pages with forms: start a workflow, send an event
    session.py    logging in and out
    approvals.py  the pages of open questions, for operators
    question_page.py  the page on which people answer, without login
    catalog.py    the data that pages show
    parts.py      which part of a history a page shows
    values.py     stored values, and the beginning of long ones
    spans.py      a history as bars, with when each operation began
    attempts.py   the attempts of an activity, as pieces of its bar
    timeline.py   bars as rows of a timeline, with their places
    squeeze.py    the scale of a timeline, which squeezes idle stretches
    folds.py      repeated operations as one row
    nested.py     what children did, as bars below their calls
    calls.py      the activities that run or are retried
    frames.py     a traceback, the cause and the user's code first
    retries.py    the entries that no longer count after a retry
    forms.py      a workflow's signature as a form; a model's fields; the source of a function
    html.py       templates, static files, headers
    words.py      times and values as text for people
    templates/    HTML, one file per page
    static/       style sheets, ES modules
"""
