"""The HTTP server: paths, limits, token and page. Starlette routes, uvicorn listens; JSON is checked by `requests`."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import signal
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from ...base.text import printable
from ...data.tasks import TASKS
from ...errors import VCRError
from ..predictions import Predictions
from .journal import JOURNAL, Journal
from .metrics import Metrics
from .openapi import describe_paths, describe_run
from .page import HEADERS, PAGE
from .requests import NewGraph, Sizes, read_flag, read_node, read_nodes, take
from .scoring import Scorer
from .worker import TooBusyError, Worker

log = logging.getLogger("vcr_graphormer.serve")
DIGITS = 6  # of probabilities; values have as many significant digits
OPEN = ("/", "/health", "/openapi.json")  # paths that need no token
_DEEPEST = 32  # of nested JSON; requests need five


@dataclass(frozen=True)
class Service:
    """What the server answers with.

    Attributes
    ----------
    path : Path
        The run folder, opened again on SIGHUP; it may be a link that leads elsewhere by then.
    journal : Path or None
        The file of kept nodes; default: kept.jsonl in the run folder.
    token : str or None
        What clients must send as `Authorization: Bearer TOKEN`; None if anyone may ask.
    sizes : Sizes
        The largest request.
    """

    path: Path
    worker: Worker
    metrics: Metrics
    journal: Path | None = None
    token: str | None = None
    sizes: Sizes = field(default_factory=Sizes)

    @classmethod
    def open(
        cls, path: Path, *, journal: Path | None = None, token: str | None = None, sizes: Sizes | None = None
    ) -> Service:
        """Open a run and its journal."""
        sizes = sizes or Sizes()
        scorer = Scorer.open(path, (path / JOURNAL).resolve() if journal is None else journal, sizes=sizes)
        return cls(path, Worker(scorer), Metrics(), journal=journal, token=token, sizes=sizes)

    def reload(self) -> None:
        """Open the run folder anew, while the old run answers, and put the new run in its place.

        Nodes that were kept and that the new run does not know are kept there too.
        """
        # Opened without its journal, which the old one may hold.
        fresh = Scorer.open(self.path, sizes=self.sizes)

        def change(old: Scorer) -> Scorer:
            fingerprint, before = fresh.run.about["fingerprint"], old.journal
            same_graph = fingerprint == old.run.about["fingerprint"]
            file = (self.path / JOURNAL).resolve() if self.journal is None else self.journal
            if before is not None and before.is_at(file):
                fresh.replay(before.records, same_graph=same_graph)
                fresh.journal = before
                return fresh
            journal = Journal(file, fingerprint)
            try:
                fresh.replay(journal.records, same_graph=journal.fingerprint == fingerprint)
                fresh.journal = journal
                fresh.replay(before.records if before is not None else (), same_graph=same_graph)
            except BaseException:
                journal.close()
                raise
            old.close()
            return fresh

        self.worker.swap(change).result()


def make_app(service: Service) -> Starlette:
    """Return the application; its worker ends with it."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        loop, tasks = asyncio.get_running_loop(), set[asyncio.Task[None]]()

        async def reload() -> None:
            try:
                await asyncio.to_thread(service.reload)
            except (VCRError, OSError) as error:
                log.error("the run was not replaced: %s", error)
            else:
                log.warning("now serving %s", service.worker.scorer.run.path.resolve())

        def start_reload() -> None:
            task = asyncio.ensure_future(reload())
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        with suppress(NotImplementedError, AttributeError, ValueError, RuntimeError):  # not on Windows or in a thread
            loop.add_signal_handler(signal.SIGHUP, start_reload)
        yield
        for task in tuple(tasks):
            await task
        await asyncio.to_thread(service.worker.close)

    endpoints: dict[str, tuple[str, Callable[[Service, Request], Awaitable[Response]]]] = {
        "/": ("GET", _page),
        "/health": ("GET", _health),
        "/openapi.json": ("GET", _openapi),
        "/schema": ("GET", _schema),
        "/metrics": ("GET", _metrics),
        "/predict": ("POST", _predict),
        "/embed": ("POST", _embed),
        "/explain": ("POST", _explain),
    }
    routes = [
        Route(path, _guarded(service, path, answer), methods=[method]) for path, (method, answer) in endpoints.items()
    ]

    async def not_here(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        service.metrics.count("other", error.status_code, 0.0)
        text = {
            404: f"there is no such path; the paths are {', '.join(endpoints)}",
            405: "this path has another method",
        }
        return _problem(error.status_code, text.get(error.status_code, error.detail), headers=error.headers)

    return Starlette(routes=routes, lifespan=lifespan, exception_handlers={HTTPException: not_here})


def _guarded(
    service: Service, path: str, answer: Callable[[Service, Request], Awaitable[Response]]
) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint that asks for the token, turns errors into 4xx, and counts."""

    async def respond(request: Request) -> Response:
        if path not in OPEN and not _is_allowed(service.token, request.headers.get("authorization", "")):
            return _problem(401, "this server needs a token: send Authorization: Bearer TOKEN", bearer=True)
        try:
            return await answer(service, request)
        except TooBusyError as error:
            return _problem(429, str(error))
        except _TooLargeError as error:
            return _problem(413, str(error))
        except _NotJsonError as error:
            return _problem(415, str(error))
        except VCRError as error:
            return _problem(500 if isinstance(error, OSError) else 400, str(error))

    async def endpoint(request: Request) -> Response:
        start = time.perf_counter()
        try:
            response = await respond(request)
        except ClientDisconnect:
            response = _problem(400, "the client went away")
        except Exception:
            log.exception("a request to %s failed", path)
            response = _problem(500, "the server failed; its log says why")
        service.metrics.count(path, response.status_code, time.perf_counter() - start)
        return response

    return endpoint


def _is_allowed(token: str | None, header: str) -> bool:
    """Compare the token in a time that does not tell how much of it is right."""
    if token is None:
        return True
    kind, _, given = header.partition(" ")
    return kind.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token.encode())


def _problem(status: int, text: str, *, headers: Any = None, bearer: bool = False) -> Response:
    more = {"WWW-Authenticate": "Bearer"} if bearer else {}
    return JSONResponse({"error": printable(text, keep="\n")}, status, headers={**(headers or {}), **more})


class _TooLargeError(VCRError):
    """The body of a request has too many bytes."""


class _NotJsonError(VCRError):
    """The body of a request is not declared as JSON."""


async def _read_json(service: Service, request: Request) -> Any:
    """Return the JSON of a request; refuse bodies that are too large, other types, NaN and infinity."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":  # a page of another site cannot send this type without asking
        raise _NotJsonError("send JSON, with the header Content-Type: application/json")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > service.sizes.body:
            raise _TooLargeError(f"the request has more than {service.sizes.body:,} bytes: send less at a time")

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not a number")

    try:
        content = json.loads(bytes(body), parse_constant=refuse)
        _check_depth(content)
    except (ValueError, RecursionError) as error:
        raise _BadJsonError(f"the request is not JSON: {error}") from error
    return content


class _BadJsonError(VCRError, ValueError):
    """The body of a request cannot be read."""


def _check_depth(content: Any, depth: int = 0) -> None:
    if depth > _DEEPEST:
        raise ValueError("it is nested too deeply")
    if isinstance(content, dict | list):
        for item in content.values() if isinstance(content, dict) else content:
            if isinstance(item, dict | list):
                _check_depth(item, depth + 1)


async def _page(service: Service, request: Request) -> Response:
    return HTMLResponse(PAGE, headers=HEADERS)


async def _health(service: Service, request: Request) -> Response:
    scorer = service.worker.scorer
    about = {"status": "ok", "run": scorer.run.path.resolve().name, "nodes": scorer.num_nodes, "kept": scorer.kept}
    return JSONResponse(about | {"token": service.token is not None})


async def _openapi(service: Service, request: Request) -> Response:
    return JSONResponse(describe_paths(service.sizes, token=service.token is not None))


async def _schema(service: Service, request: Request) -> Response:
    return JSONResponse(describe_run(service.worker.scorer, service.sizes))


async def _metrics(service: Service, request: Request) -> Response:
    worker = service.worker
    gauges = {
        "vcr_nodes": worker.scorer.num_nodes,
        "vcr_kept_nodes": worker.scorer.kept,
        "vcr_waiting_requests": worker.waiting,
        "vcr_batches": worker.batches,
        "vcr_batched_requests": worker.batched,
        "vcr_start_time_seconds": worker.started,
    }
    return PlainTextResponse(service.metrics.to_text(gauges), media_type="text/plain; version=0.0.4")


async def _predict(service: Service, request: Request) -> Response:
    content = take(await _read_json(service, request), ("nodes", "graph", "targets", "keep"))
    if "nodes" in content:
        take(content, ("nodes",))
        nodes = read_nodes(content["nodes"], "nodes", most=service.sizes.nodes)
        predictions = await asyncio.wrap_future(service.worker.predict(nodes))
    else:
        new, targets, keep = _read_new(service, content)
        predictions = await asyncio.wrap_future(
            service.worker.ask(lambda scorer: scorer.predict_new(new(scorer), targets, keep=keep))
        )
    return JSONResponse({"predictions": prediction_rows(predictions)})


async def _embed(service: Service, request: Request) -> Response:
    content = take(await _read_json(service, request), ("nodes", "graph", "targets", "keep"))

    def rows(scorer: Scorer, nodes: list[Any]) -> list[dict[str, Any]]:
        vectors = scorer.embed(nodes)
        names = [scorer.name(node) for node in scorer.find(nodes).tolist()]
        return [
            {"node": name, "vector": [_significant(value) for value in vector]}
            for name, vector in zip(names, vectors.tolist(), strict=True)
        ]

    return JSONResponse({"embeddings": await _ask(service, content, rows)})


async def _explain(service: Service, request: Request) -> Response:
    content = take(await _read_json(service, request), ("node", "graph", "class", "keep"))
    node, output = read_node(content.get("node"), "node"), content.get("class")
    if output is not None:
        read_node(output, "class")

    def explain(scorer: Scorer, nodes: list[Any]) -> dict[str, Any]:
        return scorer.explain(nodes[0], output).to_dict()

    if "graph" not in content:
        take(content, ("node", "class"))
        return JSONResponse(await _ask(service, {"nodes": [node]}, explain))
    wanted = {"graph": content["graph"], "targets": [node], "keep": read_flag(content, "keep")}
    return JSONResponse(await _ask(service, wanted, explain))


async def _ask(service: Service, content: dict[str, Any], ask: Callable[[Scorer, list[Any]], Any]) -> Any:
    """Ask about known nodes, or about new ones while they are there."""
    if "nodes" in content:
        take(content, ("nodes",))
        nodes = read_nodes(content["nodes"], "nodes", most=service.sizes.nodes)
        return await asyncio.wrap_future(service.worker.ask(lambda scorer: ask(scorer, nodes)))
    new, targets, keep = _read_new(service, content)

    def with_new(scorer: Scorer) -> Any:
        added = new(scorer)
        return scorer.with_new(added, lambda: ask(scorer, targets or list(added.names)), keep=keep)

    return await asyncio.wrap_future(service.worker.ask(with_new))


def _read_new(service: Service, content: dict[str, Any]) -> tuple[Callable[[Scorer], NewGraph], list[Any] | None, bool]:
    """Return how to read the new nodes once it is their turn, the targets, and whether to keep the nodes."""
    if "graph" not in content:
        raise _BadJsonError("the request has neither nodes nor graph: name known nodes, or give new ones")
    targets = None
    if "targets" in content:
        targets = read_nodes(content["targets"], "targets", most=service.sizes.nodes)
    # Read by the scorer that answers: another run may be in place by then.
    return (
        lambda scorer: scorer.read(content["graph"]),
        targets,
        read_flag(content, "keep"),
    )


def _significant(value: float) -> float:
    return float(f"{value:.{DIGITS + 1}g}")


def prediction_rows(predictions: Predictions) -> list[dict[str, Any]]:
    """Return predictions as plain data for JSON."""
    task, count = TASKS[predictions.task], predictions.probabilities.shape[1]
    classes = list(predictions.class_names or map(str, range(count)))[:count]
    nodes = predictions.nodes.tolist() if predictions.names is None else predictions.names.tolist()
    rows = []
    for row, node in enumerate(nodes):
        outputs = predictions.probabilities[row].tolist()
        if task.gives_values:
            values = dict(zip(classes, map(_significant, outputs), strict=True))
            rows.append({"node": node, "prediction": _significant(outputs[0]) if count == 1 else values})
            continue
        probabilities = {name: round(value, DIGITS) for name, value in zip(classes, outputs, strict=True)}
        label = predictions.labels[row]
        predicted: Any = (
            classes[int(label)]
            if task.has_classes
            else [name for name, chosen in zip(classes, label.tolist(), strict=True) if chosen]
        )
        rows.append({"node": node, "prediction": predicted, "probabilities": probabilities})
    return rows


def serve(service: Service, sockets: list[socket.socket]) -> None:
    """Answer requests until SIGTERM or Ctrl-C; requests under way are finished first."""
    import uvicorn

    config = uvicorn.Config(make_app(service), log_level="warning", lifespan="on", server_header=False)
    with suppress(KeyboardInterrupt):  # uvicorn raises it again when all is finished
        uvicorn.Server(config).run(sockets)
