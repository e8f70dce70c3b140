"""A site of Flask whose pages are limited: `python -m tests.libraries.limited_site PORT`."""

from __future__ import annotations

import os
import sys

from flask import Flask
from flask_limiter import Limiter
from flask_limiter.util import get_remote_address

from tests.libraries.worker_process import URL_VARIABLE


def make_site(url: str, limit: str, strategy: str = "fixed-window") -> Flask:
    site = Flask(__name__)
    limiter = Limiter(get_remote_address, app=site, storage_uri=url, strategy=strategy, headers_enabled=True)

    @site.get("/limited")
    @limiter.limit(limit)
    def limited() -> str:
        return "here you are"

    @site.get("/free")
    @limiter.exempt
    def free() -> str:
        return "as often as you like"

    return site


def close_site(site: Flask) -> None:
    """Close its connections to the server behind the limits."""
    for limiter in site.extensions["limiter"]:
        limiter.storage.storage.close()


if __name__ == "__main__":
    make_site(os.environ[URL_VARIABLE], "500 per day", "moving-window").run(port=int(sys.argv[1]), threaded=True)
