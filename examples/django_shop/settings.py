"""Settings of a shop on Django: its orders and their workflows are in one SQLite file."""

import os
from pathlib import Path

BASE_DIR = Path(__file__).parent
DATABASE = os.environ.get("SHOP_DATABASE", str(BASE_DIR / "shop.db"))
SECRET_KEY = os.environ.get("SHOP_SECRET_KEY", "only for this example")
DEBUG = True
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "urls"
INSTALLED_APPS = ["orders"]
MIDDLEWARE = ["django.middleware.common.CommonMiddleware"]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": DATABASE,
        # A write that finds the file busy waits, instead of failing in the middle of a transaction.
        "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 10},
    }
}
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
