"""The views: an order and the start of its workflow are one transaction."""

import json

from django.db import connection, transaction
from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.http import require_GET, require_POST

from orders.models import Order
from orders.workflows import fulfil, romancy


@require_POST
def place(request: HttpRequest) -> JsonResponse:
    app = romancy()
    with transaction.atomic():
        order = Order.objects.create(article=json.loads(request.body)["article"])
        pending = app.within(connection).start_workflow(fulfil, order.pk, instance_id=f"order-{order.pk}")
    return JsonResponse({"id": order.pk, "workflow": pending.instance_id}, status=201)


@require_POST
def pay(request: HttpRequest, order_id: int) -> JsonResponse:
    app = romancy()
    with transaction.atomic():
        order = get_object_or_404(Order, pk=order_id)
        event = {"amount": json.loads(request.body)["amount"]}
        app.within(connection).send_event("payment.received", "shop", event, subject=str(order.pk))
    return JsonResponse({"state": "payment received"}, status=202)


@require_GET
def show(request: HttpRequest, order_id: int) -> JsonResponse:
    order = get_object_or_404(Order, pk=order_id)
    return JsonResponse({"id": order.pk, "article": order.article, "state": order.state})
