# SPDX-License-Identifier: Apache-2.0
"""The demo's shop: a one-file Django application with a large catalogue in memory, like many real services.

/orders waits for a database, /price looks something up, /report builds many objects. None of them knows that
anything measures it: DjangoInstrumentor is OpenTelemetry's own.
"""

import random
import time

from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import JsonResponse
from django.urls import path
from opentelemetry.instrumentation.django import DjangoInstrumentor

PRODUCTS = 500_000  # each is an object and a list: a million containers that every full collection visits
REPORT_ROWS = 150_000  # likewise: enough survivors that CPython starts a full collection by itself
RELATED = 12
DATABASE_SECONDS = 0.25


class Product:
    def __init__(self, number, cents):
        self.number = number
        self.cents = cents
        self.related = []  # other products


class ReportRow:
    def __init__(self, product):
        self.product = product
        self.cells = [product.number, product.cents, product.cents * 119 // 100]


catalogue = [Product(number, 100 + number % 9973) for number in range(PRODUCTS)]
for product in catalogue:
    product.related += [catalogue[product.number * step % PRODUCTS] for step in range(7919, 7919 + RELATED)]


def orders(request):
    time.sleep(DATABASE_SECONDS)
    return JsonResponse({"orders": []})


def price(request):
    product = random.choice(catalogue)
    return JsonResponse({"number": product.number, "cents": product.cents})


def report(request):
    rows = [ReportRow(product) for product in random.sample(catalogue, REPORT_ROWS)]
    return JsonResponse({"rows": len(rows), "cents": sum(row.cells[2] for row in rows)})


urlpatterns = [path("orders", orders), path("price", price), path("report", report)]

settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="not a secret: nothing is signed here")
DjangoInstrumentor().instrument()
application = get_wsgi_application()
