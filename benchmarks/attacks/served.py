"""What the server reads: requests, its journal of kept nodes, and files of node names."""

from __future__ import annotations

import asyncio
import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import vcr_graphormer as vcr
from benchmarks.attacks.samples import Sample, train
from vcr_graphormer.base.files import read_json
from vcr_graphormer.cli.options import read_nodes
from vcr_graphormer.runs.predictions import find_nodes
from vcr_graphormer.runs.serving.journal import Journal
from vcr_graphormer.runs.serving.requests import Sizes
from vcr_graphormer.runs.serving.scoring import Scorer
from vcr_graphormer.runs.serving.server import Service, make_app

NEW = {
    "nodes": [{"id": "x0", "features": [0.5, 1.0, -1.0, 0.25, 2.0]}, {"id": "x1", "features": [0.0] * 5}],
    "edges": [{"source": "x0", "target": "n5", "weight": 1}, {"source": "n7", "target": "x1"}],
}
REQUESTS: dict[str, Any] = {
    "predict": {"graph": NEW, "targets": ["x0", "n3"]},
    "embed": {"nodes": ["n3", 4, "id:5"]},
    "explain": {"node": "n3", "class": "b"},
}


def _write_server(folder: Path) -> None:
    train(folder, named=True)
    Scorer.open(folder / "run").close()  # prepares the rankers once
    (folder / "requests").mkdir()
    for name, content in REQUESTS.items():
        (folder / "requests" / f"{name}.json").write_text(json.dumps(content))
    lines = [{"format": 1, "graph": read_json(folder / "run" / "run.json")["fingerprint"]}, NEW]
    (folder / "journal").mkdir()
    (folder / "journal" / "kept.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    (folder / "nodes").mkdir()
    (folder / "nodes" / "nodes.txt").write_text("n1\nn2\nid:3\n")


_services: dict[Path, Service] = {}


def _use_requests(folder: Path) -> None:
    """Send each request to the application, without a socket; an answer of 5xx is a defect."""
    service = _services.get(folder)
    if service is None:  # once per process: threads do not survive a fork
        sizes = Sizes(body=1 << 16, nodes=50, edges=100)
        kept = folder.parent / f"kept-{os.getpid()}.jsonl"
        service = _services[folder] = Service.open(folder / "run", journal=kept, sizes=sizes)
    for file in sorted((folder / "requests").glob("*.json")):
        status, answer = asyncio.run(_ask(service, f"/{file.stem}", file.read_bytes()))
        if status >= 500:
            raise RuntimeError(f"status {status} of {file.stem}: {answer[:200]!r}")


async def _ask(service: Service, path: str, body: bytes) -> tuple[int, bytes]:
    """Return status and body of the answer to one request."""
    sent: list[Any] = []
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    scope: dict[str, Any] = {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "headers": headers,
    }
    scope |= {"query_string": b"", "http_version": "1.1", "scheme": "http", "server": ("here", 80), "client": None}

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await make_app(service)(scope, receive, send)
    return int(sent[0]["status"]), b"".join(message.get("body", b"") for message in sent)


@cache
def _served(folder: Path) -> vcr.Run:
    return vcr.Run.open(folder / "run", "cpu")


def _use_journal(folder: Path) -> None:
    run = _served(folder)
    Scorer(run, Journal(folder / "journal" / "kept.jsonl", run.about["fingerprint"])).close()


def _use_nodes(folder: Path) -> None:
    find_nodes(_served(folder).graph, read_nodes(f"@{folder}/nodes/nodes.txt"))


SERVED = {
    "requests": Sample(_write_server, _use_requests, inside="requests"),
    "journal": Sample(_write_server, _use_journal, inside="journal", share=2),
    "node names": Sample(_write_server, _use_nodes, inside="nodes"),
}
