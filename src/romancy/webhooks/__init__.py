"""Webhooks of other systems: who sent a delivery, and which events it becomes. Nothing here knows of HTTP servers.

declaration.py  `Webhook` and `WebhookRequest`, as users write and see them
schemes.py      signatures: how each sender proves that a delivery is its own
senders.py      how the deliveries of each sender become events, and which answer it expects
deliveries.py   the content of a delivery
"""
