"""A site of Django with one page, which counts the visits of a session."""

from __future__ import annotations

from typing import Any, Final

from django.http import HttpRequest, HttpResponse
from django.urls import path

SETTINGS: Final[dict[str, Any]] = {
    "ROOT_URLCONF": "tests.libraries.django_site",
    "MIDDLEWARE": ["django.contrib.sessions.middleware.SessionMiddleware"],
    "SESSION_ENGINE": "django.contrib.sessions.backends.cache",
}


def count_visit(request: HttpRequest) -> HttpResponse:
    visits = request.session.get("visits", 0) + 1
    request.session["visits"] = visits
    return HttpResponse(str(visits))


urlpatterns = [path("visit", count_visit)]
