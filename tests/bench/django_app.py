# SPDX-License-Identifier: Apache-2.0
"""A request as services have them: Django's middleware, a query of an in-memory SQLite by the ORM, a template, JSON.
BENCH_CONNECT=PORT: and a connection to another service, without a pool."""
import os
import socket

from django.conf import settings

settings.configure(
    ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="not a secret: nothing is signed here",
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "file:bench?mode=memory&cache=shared"}},
    DEFAULT_AUTO_FIELD="django.db.models.AutoField", USE_TZ=True,
    MIDDLEWARE=["django.middleware.security.SecurityMiddleware", "django.middleware.common.CommonMiddleware",
                "django.middleware.http.ConditionalGetMiddleware"],
    TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates"}])

import django  # noqa: E402

django.setup()

from django.core.wsgi import get_wsgi_application  # noqa: E402
from django.db import connection, models  # noqa: E402
from django.http import JsonResponse  # noqa: E402
from django.template import engines  # noqa: E402
from django.urls import path  # noqa: E402


class Order(models.Model):
    name = models.CharField(max_length=40)
    cents = models.IntegerField()

    class Meta:
        app_label = "bench"


with connection.schema_editor() as editor:
    editor.create_model(Order)
Order.objects.bulk_create(Order(name=f"order {i}", cents=i * 7 % 9973) for i in range(200))
page = engines["django"].from_string("{% for o in orders %}<li>{{ o.name|upper }}: {{ o.cents|floatformat:2 }}</li>{% endfor %}")


CONNECT = int(os.environ.get("BENCH_CONNECT", 0))


def orders(request):
    if CONNECT:
        socket.create_connection(("127.0.0.1", CONNECT)).close()
    found = list(Order.objects.filter(cents__gt=50).order_by("-cents")[:20])
    return JsonResponse({"html": page.render({"orders": found}), "n": len(found)})


urlpatterns = [path("", orders)]
app = get_wsgi_application()
