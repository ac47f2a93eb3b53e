"""`python manage.py work`: run the workflows of the shop until a signal ends it."""

import signal
import threading
from typing import Any

from django.core.management.base import BaseCommand

from orders.workflows import make_app


class Command(BaseCommand):
    help = "Run the workflows of the shop until a signal ends it."

    def handle(self, *args: Any, **options: Any) -> None:
        over = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: over.set())
        with make_app(worker=True):
            self.stdout.write("The worker runs; stop it with Ctrl-C.")
            self.stdout.flush()
            over.wait()
