"""The routes of the viewer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from romancy.http.responses import Response
from romancy.http.routes import Request, Route
from romancy.viewer import (
    action_pages,
    approvals,
    instance_page,
    kept_aside,
    now,
    pages,
    question_page,
    queues,
    schedules,
    session,
)
from romancy.viewer.html import redirect, static


async def front(request: Request) -> Response:
    """Redirect /viewer to /viewer/."""
    return redirect(request, "/viewer/")


def _page(path: str, handler: Any, query: Any = None, scope: str | None = "read") -> Route:
    return Route("GET", path, handler, {200: str}, query=query, scope=scope, on_error=pages.failed)


def _form(path: str, handler: Any) -> Route:
    made = _page(path, handler, scope=None)
    return replace(made, method="POST", contents={"application/x-www-form-urlencoded": str})


def _answer(path: str, handler: Any, query: Any) -> Route:
    made = _page(path, handler, query, scope="control")
    return replace(made, method="POST")


ROUTES = (
    _page("/viewer", front, scope=None),
    _page("/viewer/", now.now, pages.InstancesQuery),
    _page("/viewer/group", now.group, now.GroupQuery),
    _page("/viewer/group-ids", now.group_ids, now.GroupQuery),
    _page("/viewer/retrying", now.retrying, pages.Query),
    _page("/viewer/overdue", now.overdue, pages.Query),
    _page("/viewer/instances", pages.instances, pages.InstancesQuery),
    _page("/viewer/rows", pages.rows, pages.RowsQuery),
    _page("/viewer/newer", pages.newer, pages.InstancesQuery),
    _page("/viewer/instances/{instance_id}", instance_page.instance, instance_page.InstanceQuery),
    _page("/viewer/instances/{instance_id}/history.json", instance_page.history, pages.Nothing),
    _page("/viewer/waiting", pages.waiting, pages.WaitingQuery),
    _page("/viewer/waits", pages.waits, pages.WaitsQuery),
    _page("/viewer/events", pages.events, pages.EventsQuery),
    _page("/viewer/event", pages.event, pages.EventQuery),
    _page("/viewer/inbox", kept_aside.inbox, pages.Query),
    _page("/viewer/held", kept_aside.held, kept_aside.HeldQuery),
    _page("/viewer/sinks", kept_aside.sinks, pages.Query),
    _page("/viewer/workflows", action_pages.workflows, pages.Nothing),
    _page("/viewer/schedules", schedules.schedules, pages.Nothing),
    _page("/viewer/queues", queues.queues, pages.Query),
    _page("/viewer/approvals", approvals.approvals, pages.Query),
    _page("/viewer/approvals/{instance_id}", approvals.approval, approvals.QuestionQuery),
    _answer("/viewer/approvals/{instance_id}", approvals.answer, approvals.QuestionQuery),
    _page("/viewer/start/{name}", action_pages.start, action_pages.StartQuery),
    _page("/viewer/send", action_pages.send, action_pages.SendQuery),
    _page("/viewer/login", session.login_form, scope=None),
    _form("/viewer/login", session.log_in),
    _form("/viewer/logout", session.log_out),
    replace(_page("/viewer/static/{version}/{name}", static, scope=None), is_public=True),  # the page of questions, too
    _page("/viewer/{path}", pages.nothing),
    *question_page.ROUTES,
)
