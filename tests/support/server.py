"""A server in a thread of the test, on a port that is free."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import uvicorn

from vcr_graphormer.runs.serving.server import Service, make_app


@contextmanager
def serving(service: Service) -> Iterator[httpx.Client]:
    """Yield a client of the running server; the worker of the service ends with it."""
    with running(service) as server:
        port = server.servers[0].sockets[0].getsockname()[1]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            yield client


@contextmanager
def running(service: Service) -> Iterator[uvicorn.Server]:
    """Yield the running server."""
    server = uvicorn.Server(uvicorn.Config(make_app(service), port=0, log_level="warning", lifespan="on"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        yield server
    finally:
        server.should_exit = True
        thread.join()
