"""The shop's own tables, beside Romancy's in the same file."""

from django.db import models


class Order(models.Model):
    article = models.CharField(max_length=100)
    state = models.CharField(max_length=20, default="placed")


class Payment(models.Model):
    order = models.ForeignKey(Order, on_delete=models.CASCADE)
    amount = models.IntegerField()
