"""Which view answers which URL."""

from django.urls import path
from orders import views

urlpatterns = [
    path("orders", views.place),
    path("orders/<int:order_id>", views.show),
    path("orders/<int:order_id>/payment", views.pay),
]
