"""Load test of the server: latency, throughput, malformed requests, kill -9, and memory.

    python -m benchmarks serving     about ten minutes on two cores

Generated graphs with 10 edges per node and 64 features; the default model, trained for one epoch. The server is a
process of its own; the clients share the same two cores. One new node has five edges. Latency is what a client sees.
Everything but the first part is measured on the largest graph. Writes results/serving.json, with the load average of
the machine before and after each part.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import vcr_graphormer as vcr
from benchmarks.common import markdown_table, new_parser, write_result
from vcr_graphormer.base.files import read_json

SIZES = (10_000, 100_000)
EDGES_PER_NODE, FEATURES, CLASSES = 10, 64, 10
NEIGHBOURS = 5  # edges of a new node
PARTS = ("one new node", "known nodes", "malformed", "memory", "kill")
PIECES = 10  # measurements of memory
TURNS = 20  # of the graphs, while the latency of a new node is measured


def make_run(nodes: int, folder: Path) -> Path:
    """Train for one epoch on a generated graph; return the run folder, which may be there already."""
    path = folder / f"run-{nodes}"
    if (path / "metrics.json").is_file():
        return path
    graph = vcr.generate(nodes, EDGES_PER_NODE * nodes, features=FEATURES, classes=CLASSES, homophily=0.7, seed=0)
    graph = replace(graph, names=np.array([f"n{node}" for node in range(nodes)]))
    order = np.random.default_rng(0).permutation(nodes)
    ends = [nodes // 20, nodes // 16, nodes // 14]
    split = vcr.Split(*(np.sort(part) for part in np.split(order, ends)[:3]))
    config = vcr.Config(training=vcr.TrainConfig(epochs=1))
    vcr.train(graph, split, config, path, device="cpu", baselines="none")
    return path


class Server:
    """The command `serve` as a process."""

    def __init__(self, run: Path, journal: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        command = [sys.executable, "-m", "vcr_graphormer", "serve", str(run), "--port", str(self.port)]
        start = time.perf_counter()
        self.process = subprocess.Popen([*command, "--journal", str(journal)], stderr=subprocess.DEVNULL)
        while True:
            if self.process.poll() is not None:
                raise RuntimeError("the server ended at once")
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    break
            time.sleep(0.05)
        self.seconds_to_start = time.perf_counter() - start

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End the process and wait for it."""
        self.process.send_signal(how)
        self.process.wait()

    @property
    def megabytes(self) -> float:
        """Return the memory of the process that is its own, not mapped from files."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        sizes = {line.split(":")[0]: line.split()[1] for line in lines if line.startswith(("RssAnon", "VmRSS"))}
        return int(sizes.get("RssAnon", sizes["VmRSS"])) / 1024


class Client:
    """A connection that is kept open: a few lines, not a library, so that clients take little of the two cores."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None

    async def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Send a body and return status and answer."""
        if self.reader is None or self.writer is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        lines = [f"POST {path} HTTP/1.1", "Host: here", "Content-Type: application/json"]
        head = "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""])
        self.writer.write(head.encode() + body)
        answer = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        length = int(answer.split("content-length:")[1].split("\r\n")[0])
        content = await self.reader.readexactly(length)
        if "connection: close" in answer:
            self.close()
        return int(answer.split()[1]), content

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self.writer is not None:
            self.writer.close()
        self.reader = self.writer = None


def new_node(name: str, nodes: int, source: random.Random, *, keep: bool = False) -> dict[str, Any]:
    """Return a request for one new node with random features and edges."""
    edges = [{"source": name, "target": f"n{source.randrange(nodes)}"} for _ in range(NEIGHBOURS)]
    features = [round(source.gauss(0, 1), 4) for _ in range(FEATURES)]
    return {"graph": {"nodes": [{"id": name, "features": features}], "edges": edges}, "targets": [name], "keep": keep}


async def one_after_the_other(port: int, bodies: list[bytes]) -> list[float]:
    """Return the seconds of each request."""
    client, seconds = Client(port), []
    for body in bodies:
        start = time.perf_counter()
        status, content = await client.post("/predict", body)
        seconds.append(time.perf_counter() - start)
        if status != 200:
            raise RuntimeError(content.decode())
    client.close()
    return seconds


async def side_by_side(
    port: int, clients: int, count: int, body: Callable[[int], bytes], check: Callable[[int, int, bytes], Any]
) -> None:
    """Send `count` requests by some clients at the same time; `check` gets number, status and answer."""
    numbers = iter(range(count))

    async def work() -> None:
        client = Client(port)
        for number in numbers:
            check(number, *(await client.post("/predict", body(number))))
        client.close()

    await asyncio.gather(*(work() for _ in range(clients)))


def measure_new(runs: dict[int, Path], requests: int, folder: Path) -> list[dict[str, Any]]:
    """Return the latency of one new node on each graph; the servers take turns, so that all see the same machine."""
    source = random.Random(0)
    servers = {nodes: Server(run, folder / f"new-{nodes}.jsonl") for nodes, run in runs.items()}
    seconds: dict[int, list[float]] = {nodes: [] for nodes in runs}
    for number in range(TURNS + 1):
        for nodes, server in servers.items():
            names = [f"x{number}-{place}" for place in range(requests // TURNS)]
            bodies = [json.dumps(new_node(name, nodes, source)).encode() for name in names]
            measured = asyncio.run(one_after_the_other(server.port, bodies))
            if number:  # the first turn warms up
                seconds[nodes] += measured
    rows = []
    for nodes, server in servers.items():
        server.end()
        p50, p99 = np.percentile(seconds[nodes], [50, 99])
        row: dict[str, Any] = {"nodes": nodes, "edges": EDGES_PER_NODE * nodes, "requests": len(seconds[nodes])}
        row |= {"p50 ms": 1e3 * float(p50), "p99 ms": 1e3 * float(p99), "largest ms": 1e3 * max(seconds[nodes])}
        rows.append(row | {"seconds to start": server.seconds_to_start})
    return rows


def measure_known(server: Server, nodes: int, requests: int, clients: int) -> dict[str, Any]:
    """Return how many known nodes a second are predicted, and how many answers are missing or of another node."""
    right = Counter[str]()

    def check(number: int, status: int, content: bytes) -> None:
        rows = json.loads(content).get("predictions", [{}])
        right["answered"] += 1
        right["right"] += status == 200 and rows[0].get("node") == f"n{number % nodes}"

    start = time.perf_counter()
    body = lambda number: json.dumps({"nodes": [f"n{number % nodes}"]}).encode()  # noqa: E731
    asyncio.run(side_by_side(server.port, clients, requests, body, check))
    seconds = time.perf_counter() - start
    return {
        "clients": clients,
        "requests": requests,
        "nodes a second": requests / seconds,
        "lost": requests - right["answered"],
        "wrong": right["answered"] - right["right"],
    }


def spoil(content: Any, source: random.Random) -> Any:
    """Return JSON with one thing changed: a value of another type, a key that is gone, a number that is none."""
    values: list[Any] = [None, True, -1, 1e308, 10**30, "", "n1", "\u0000", [], {}, [[]], {"id": 1}, "9" * 400, 0.5]
    if isinstance(content, dict) and content and source.random() < 0.9:
        key = source.choice(list(content))
        if source.random() < 0.2:
            return {name: value for name, value in content.items() if name != key}
        return {**content, key: spoil(content[key], source)}
    if isinstance(content, list) and content and source.random() < 0.9:
        place = source.randrange(len(content))
        return [*content[:place], spoil(content[place], source), *content[place + 1 :]]
    return source.choice(values)


def spoil_bytes(body: bytes, source: random.Random) -> bytes:
    """Return bytes with some changed, cut or repeated."""
    changed = bytearray(body)
    for _ in range(source.randint(1, 8)):
        changed[source.randrange(len(changed))] = source.randrange(256)
    cut = source.randrange(len(changed))
    return bytes(source.choice([changed, changed[:cut], changed[cut:], changed * 2, b"[" * 5000, b""]))


def measure_malformed(server: Server, nodes: int, requests: int) -> dict[str, Any]:
    """Return the statuses of requests that were spoiled, of which a few are still right by chance."""
    source, statuses = random.Random(1), Counter[int]()

    def body(number: int) -> bytes:
        whole = new_node(f"y{number}", nodes, source) if number % 2 else {"nodes": ["n1", "n2"]}
        whole.pop("keep", None)
        if source.random() < 0.6:
            return json.dumps(spoil(whole, source)).encode()
        return spoil_bytes(json.dumps(whole).encode(), source)

    def check(number: int, status: int, content: bytes) -> None:
        statuses[status] += 1
        if status != 200:
            assert list(json.loads(content)) == ["error"]

    asyncio.run(side_by_side(server.port, 8, requests, body, check))
    return {
        "requests": requests,
        "by status": {str(status): count for status, count in sorted(statuses.items())},
        "5xx": sum(count for status, count in statuses.items() if status >= 500),
        "lost": requests - sum(statuses.values()),
    }


def measure_kill(run: Path, nodes: int, folder: Path, times: int) -> dict[str, Any]:
    """Kill the server while it keeps nodes, again and again; return how many acknowledged nodes are missing after."""
    source, journal, kept = random.Random(2), folder / "kill.jsonl", list[str]()

    async def keep_until_killed(server: Server, first: int) -> None:
        client, number = Client(server.port), first
        asyncio.get_running_loop().call_later(source.uniform(0.5, 1.5), server.process.kill)
        try:
            while True:
                name = f"k{number}"
                status, _ = await client.post("/predict", json.dumps(new_node(name, nodes, source, keep=True)).encode())
                assert status == 200
                kept.append(name)
                number += 1
        except (ConnectionError, asyncio.IncompleteReadError):
            client.close()

    starts = []
    for number in range(times):
        server = Server(run, journal)
        starts.append(server.seconds_to_start)
        asyncio.run(keep_until_killed(server, 1_000_000 * number))
        server.process.wait()
    server = Server(run, journal)
    missing = Counter[str]()

    def check(number: int, status: int, content: bytes) -> None:
        missing["missing"] += status != 200

    body = lambda number: json.dumps({"nodes": [kept[number]]}).encode()  # noqa: E731
    asyncio.run(side_by_side(server.port, 8, len(kept), body, check))
    server.end()
    return {
        "kills": times,
        "kept": len(kept),
        "missing": missing["missing"],
        "seconds to start at last": server.seconds_to_start,
    }


def measure_memory(server: Server, nodes: int, requests: int) -> list[dict[str, float]]:
    """Return the memory of the server after each piece of many requests, one in ten with a new node."""
    source, rows = random.Random(3), [{"requests": 0, "megabytes": server.megabytes}]

    def body(number: int) -> bytes:
        if number % 10 == 0:
            return json.dumps(new_node(f"z{number}", nodes, source)).encode()
        return json.dumps({"nodes": [f"n{source.randrange(nodes)}"]}).encode()

    def check(number: int, status: int, content: bytes) -> None:
        assert status == 200, content

    for piece in range(PIECES):
        asyncio.run(side_by_side(server.port, 8, requests // PIECES, body, check))
        rows.append({"requests": (piece + 1) * (requests // PIECES), "megabytes": server.megabytes})
    return rows


def table(result: dict[str, Any]) -> str:
    """Return the result as Markdown."""
    largest, memory = result["one new node"][-1], result["memory"]
    known, malformed, kill = result["known nodes"], result["malformed"], result["kill"]
    grown = memory[-1]["megabytes"] - memory[1]["megabytes"]
    rows = [
        [
            f"one new node on {row['nodes']:,} nodes, {row['edges']:,} edges",
            f"p50 {row['p50 ms']:.1f} ms, p99 {row['p99 ms']:.1f} ms",
        ]
        for row in result["one new node"]
    ]
    rows += [
        [
            f"known nodes, {known['clients']} clients, {known['requests']:,} requests",
            f"{known['nodes a second']:,.0f} a second, {known['lost']} lost, {known['wrong']} wrong",
        ],
        [f"{malformed['requests']:,} malformed requests", f"{malformed['5xx']} times 5xx, {malformed['lost']} lost"],
        [f"{kill['kills']} times kill -9, {kill['kept']:,} kept nodes", f"{kill['missing']} missing"],
        [
            f"memory over {memory[-1]['requests']:,} requests",
            f"{memory[1]['megabytes']:.0f} MB after the first tenth, {grown:+.0f} MB at the end",
        ],
        [
            f"start; with {kill['kept']:,} kept nodes",
            f"{largest['seconds to start']:.1f} s; {kill['seconds to start at last']:.1f} s",
        ],
    ]
    return markdown_table(["load test", "measured"], rows)


def make_parser() -> argparse.ArgumentParser:
    """Return the options of this benchmark."""
    parser = new_parser(__doc__, data=False, out="results/serving.json")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="numbers of nodes")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="what to measure (default: all)")
    parser.add_argument("--new", type=int, default=2000, help="requests with one new node")
    parser.add_argument("--known", type=int, default=20_000, help="requests for known nodes")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--malformed", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--requests", type=int, default=100_000, help="requests while memory is watched")
    parser.add_argument("--folder", type=Path, help="where runs are kept for the next time (default: nowhere)")
    return parser


def main() -> None:
    """Measure the parts that are asked for, print and write; other parts stay as they are in the file."""
    arguments = make_parser().parse_args()
    result: dict[str, Any] = {}
    if arguments.out.is_file():
        result = {part: value for part, value in read_json(arguments.out).items() if part in (*PARTS, "load average")}
    load = result.setdefault("load average", {})
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        runs = {size: make_run(size, arguments.folder or folder) for size in arguments.sizes}
        size, run = max(runs.items())
        measures: dict[str, Callable[[Server], Any]] = {
            "known nodes": lambda server: measure_known(server, size, arguments.known, arguments.clients),
            "malformed": lambda server: measure_malformed(server, size, arguments.malformed),
            "memory": lambda server: measure_memory(server, size, arguments.requests),
        }
        for part in arguments.parts:
            before = os.getloadavg()[0]
            if part == "one new node":
                result[part] = measure_new(runs, arguments.new, folder)
            elif part == "kill":
                result[part] = measure_kill(run, size, folder, arguments.kills)
            else:
                server = Server(run, folder / "kept.jsonl")
                result[part] = measures[part](server)
                server.end()
            load[part] = {"before": before, "after": os.getloadavg()[0]}
    if set(PARTS) <= result.keys():
        print(table(result))
    write_result(arguments.out, result)
