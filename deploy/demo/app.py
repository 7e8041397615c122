# SPDX-License-Identifier: Apache-2.0
"""The demo's shop: a one-file Django application with a large catalogue in memory, like many real services.

/orders waits for a database, /price looks something up, /report builds many objects. No function knows of
the measurement: DjangoInstrumentor belongs to OpenTelemetry.
"""

import random
import time

from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import JsonResponse
from django.urls import path
from opentelemetry.instrumentation.django import DjangoInstrumentor

PRODUCTS = 500_000  # an object and a list each: a million containers, visited by every full collection
REPORT_ROWS = 150_000  # enough survivors for CPython to start a full collection
RELATED = 12
DATABASE_SECONDS = 0.25


class Product:
    def __init__(self, number, cents):
        self.number = number
        self.cents = cents
        self.related = []  # further products


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
