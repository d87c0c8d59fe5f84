"""The server: what it answers, what it refuses, and that it loses nothing. In process, without a socket."""

import asyncio
import json
import shutil
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import vcr_graphormer as vcr
from tests.runs.serving.test_scoring import FEATURES, train
from tests.support.runs import CONFIG, named_graph
from tests.support.server import running, serving
from vcr_graphormer.errors import StoreError
from vcr_graphormer.runs.serving import worker as workers
from vcr_graphormer.runs.serving.requests import Sizes
from vcr_graphormer.runs.serving.server import Service, make_app, prediction_rows

NEW: dict[str, Any] = {
    "nodes": [{"id": "x0", "features": FEATURES[0].tolist()}],
    "edges": [{"source": "x0", "target": "n5", "weight": 1}, {"source": "n7", "target": "x0"}],
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> vcr.Run:
    return train(named_graph(), CONFIG, tmp_path_factory.mktemp("served") / "run")


@pytest.fixture
def service(run: vcr.Run, tmp_path: Path) -> Service:
    sizes = Sizes(body=20_000, nodes=20, edges=30)
    return Service.open(run.path, journal=tmp_path / "kept.jsonl", sizes=sizes)


@pytest.fixture
def client(service: Service) -> Iterator[httpx.Client]:
    with serving(service) as client:
        yield client


def error_of(response: httpx.Response) -> str:
    assert list(response.json()) == ["error"]
    return str(response.json()["error"])


def test_known_nodes(client: httpx.Client, run: vcr.Run) -> None:
    answer = client.post("/predict", json={"nodes": ["n3", 4, "id:5"]})
    assert answer.status_code == 200
    rows, expected = answer.json()["predictions"], run.predict([3, 4, 5])
    assert [row["node"] for row in rows] == ["n3", "n4", "n5"]
    for row, outputs, label in zip(rows, expected.probabilities, expected.labels, strict=True):
        assert list(row["probabilities"]) == ["a", "b", "c"]
        assert list(row["probabilities"].values()) == pytest.approx(outputs.tolist(), abs=1e-5)
        assert row["prediction"] == "abc"[label]


def test_new_nodes_are_forgotten_or_kept(client: httpx.Client) -> None:
    first = client.post("/predict", json={"graph": NEW, "targets": ["x0"]})
    assert first.status_code == 200
    assert [row["node"] for row in first.json()["predictions"]] == ["x0"]
    assert client.post("/predict", json={"nodes": ["x0"]}).status_code == 400
    kept = client.post("/predict", json={"graph": NEW, "keep": True})
    assert kept.json() == first.json()
    assert client.post("/predict", json={"nodes": ["x0"]}).json() == first.json()
    assert client.get("/health").json()["kept"] == 1
    again = client.post("/predict", json={"graph": NEW})
    assert (again.status_code, error_of(again)) == (400, "'x0' is in the graph already: give new nodes new names")


def test_vectors_and_explanations(client: httpx.Client, run: vcr.Run) -> None:
    rows = client.post("/embed", json={"nodes": ["n3"]}).json()["embeddings"]
    assert rows[0]["node"] == "n3"
    np.testing.assert_allclose(rows[0]["vector"], run.embed(["n3"])[0], atol=1e-5)
    new = client.post("/embed", json={"graph": NEW}).json()["embeddings"]
    assert (new[0]["node"], len(new[0]["vector"])) == ("x0", 16)
    explanation = client.post("/explain", json={"node": "n3", "class": "b"}).json()
    assert (explanation["name"], explanation["explained"]) == ("n3", "b")
    assert [token["name"] for token in explanation["tokens"] if token["kind"] == "self"] == ["n3"]
    of_new = client.post("/explain", json={"node": "x0", "graph": NEW}).json()
    assert (of_new["name"], of_new["label"]) == ("x0", None)
    aimless = client.post("/explain", json={"node": "n3", "keep": True})
    assert (aimless.status_code, error_of(aimless)[:33]) == (400, "the request has an unknown key 'k")
    wrong = client.post("/explain", json={"node": "n3", "class": "z"})
    assert (wrong.status_code, error_of(wrong)) == (400, "unknown class 'z' (known: a, b, c)")


def test_about(client: httpx.Client) -> None:
    about = client.get("/schema").json()
    assert (about["task"], about["classes"], about["features"]["count"]) == ("classification", ["a", "b", "c"], 8)
    assert about["limits"] == {"body_bytes": 20_000, "nodes": 20, "edges": 30}
    document = client.get("/openapi.json").json()
    assert document["openapi"] == "3.1.0"
    assert set(document["paths"]) == {"/predict", "/embed", "/explain", "/schema", "/health", "/metrics"}
    named = set(json.dumps(document).split('"#/components/schemas/')[1:])
    assert {text.split('"')[0] for text in named} <= set(document["components"]["schemas"])
    client.post("/predict", json={"nodes": ["n3"]})
    client.get("/nothing")
    text = client.get("/metrics").text
    assert 'vcr_requests_total{path="/predict",status="200"} 1' in text
    assert 'vcr_requests_total{path="other",status="404"} 1' in text
    assert "vcr_nodes 150" in text


def node(**changes: Any) -> dict[str, Any]:
    return {"graph": {"nodes": [{**NEW["nodes"][0], **changes}]}}


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (
            {"nodes": ["nobody"]},
            "there is no node named 'nobody' (names with commas: put them into a file, one per line)",
        ),
        ({"nodes": [150]}, "there is no node 150: the graph has nodes 0 to 149"),
        ({"nodes": [True]}, "nodes[0] is True; it must be the name or the id of a node"),
        ({"nodes": []}, "nodes is empty: name at least one node"),
        ({"nodes": ["n1"] * 21}, "nodes has 21 entries; at most 20 are allowed in one request"),
        ({"nodes": ["n1"], "keep": True}, "the request has an unknown key 'keep'; the keys are nodes"),
        ({}, "the request has neither nodes nor graph: name known nodes, or give new ones"),
        ([1], "the request is [1]; it must be a JSON object"),
        ({"graph": NEW, "targets": ["n999"]}, "there is no node named 'n999'"),
        ({"graph": NEW, "keep": 1}, "keep is 1; it must be true or false"),
        ({"graph": {"nodes": [*NEW["nodes"], *NEW["nodes"]]}}, "graph.nodes[1].id is 'x0', which is there twice"),
        (node(id="n3"), "'n3' is in the graph already: give new nodes new names"),
        (node(id=None), "graph.nodes[0].id is None; it must be the name or the id of a node"),
        ({"nodes": ["n1", "n3\0"]}, "nodes[1] is 'n3\\x00', which holds the character NUL: leave it out of names"),
        (node(id="x\0"), "graph.nodes[0].id is 'x\\x00', which holds the character NUL"),
        (node(id=""), "graph.nodes[0].id has 0 characters; a name has 1 to 1,000"),
        (node(features=None), "graph.nodes[0].features is missing: the graph has 8 features"),
        (node(features=[1.0]), "graph.nodes[0].features has 1 numbers but the graph has 8 features"),
        (node(features={"0": 1.0}), "graph.nodes[0].features lacks '1': the graph has 8 features"),
        (node(features={"age": 1.0}), "graph.nodes[0].features names 'age', which is not one of the 8 features"),
        (node(features=["a"] * 8), "graph.nodes[0].features[0] is 'a'; it must be a number"),
        (
            node(features=[1e300] * 8),
            "graph.nodes[0].features[0] is 1e+300; it must be a finite number that float32 holds",
        ),
        (node(features=[10**400] * 8), "it must be a finite number that float32 holds"),
        (node(features=[1e30] * 8), "the answer for 'x0' is not a finite number"),
        ({**node(features=[1e30] * 8), "targets": ["n3"], "keep": True}, "the answer for 'x0' is not a finite number"),
        (node(label=3), "graph.nodes[0] has an unknown key 'label'; the keys are id, features"),
        ({"graph": {"nodes": []}}, "graph.nodes is empty: give at least one new node"),
        ({"graph": {**NEW, "edges": [{"source": "x0"}]}}, "graph.edges[0].target is None"),
        (
            {"graph": {**NEW, "edges": [{"source": "x0", "target": "n1", "weight": -1}]}},
            "graph.edges[0].weight is -1.0; weights must be positive",
        ),
        ({"graph": {**NEW, "edges": [{"source": "n2", "target": "n1"}]}}, "each edge needs a new node"),
        ({"graph": {**NEW, "edges": [{"source": "x0", "target": "n1"}] * 31}}, "graph.edges has 31 entries"),
    ],
)
def test_wrong_requests(client: httpx.Client, content: Any, text: str) -> None:
    response = client.post("/predict", json=content)
    assert response.status_code == 400
    assert text in error_of(response)
    assert client.get("/health").json()["nodes"] == 150


def test_wrong_bodies(client: httpx.Client) -> None:
    as_json = {"Content-Type": "application/json"}
    for body, status, text in (
        (b"{", 400, "the request is not JSON"),
        (b'{"nodes": [NaN]}', 400, "NaN is not a number"),
        (b'{"nodes": "\xff"}', 400, "the request is not JSON"),
        (b"[" * 10_000, 400, "the request is not JSON"),
        (b"[" * 50 + b"]" * 50, 400, "nested too deeply"),
        (b'{"nodes": [' + b"1," * 10_000 + b"1]}", 413, "more than 20,000 bytes"),
        (b"", 400, "the request is not JSON"),
        (b'{"nodes": ["\\ud800"]}', 400, "half a character"),
    ):
        response = client.post("/predict", content=body, headers=as_json)
        assert response.status_code == status
        assert text in error_of(response)
    response = client.post("/predict", content=b'{"nodes": [1]}', headers={"Content-Type": "text/plain"})
    assert (response.status_code, error_of(response)[:9]) == (415, "send JSON")
    assert client.get("/predict").status_code == 405
    assert client.get("/../../etc/passwd").status_code == 404


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(["n1", "n2", "x0", 3]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["nodes", "id", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)
requests = st.fixed_dictionaries(
    {},
    optional={
        "nodes": plain,
        "targets": plain,
        "keep": st.just(False) | st.integers(),
        "graph": plain
        | st.fixed_dictionaries(
            {},
            optional={
                "nodes": plain
                | st.lists(
                    st.fixed_dictionaries({"id": plain}, optional={"features": plain | st.just([0.5] * 8)}), max_size=3
                ),
                "edges": plain
                | st.lists(
                    st.fixed_dictionaries({"source": plain, "target": plain}, optional={"weight": plain}), max_size=3
                ),
            },
        ),
    },
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=requests, path=st.sampled_from(["/predict", "/embed", "/explain"]))
def test_no_request_makes_the_server_fail(client: httpx.Client, content: Any, path: str) -> None:
    assert client.post(path, json=content).status_code in (200, 400)
    assert client.get("/health").json()["nodes"] == 150


def test_an_error_inside_is_500_and_the_next_request_is_answered(
    client: httpx.Client, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any) -> None:
        raise RuntimeError("secret")

    with monkeypatch.context() as patch:
        patch.setattr(service.worker.scorer, "outputs", fail)
        response = client.post("/predict", json={"nodes": ["n3"]})
        assert (response.status_code, error_of(response)) == (500, "the server failed; its log says why")
    assert client.post("/predict", json={"nodes": ["n3"]}).status_code == 200


def test_the_token(run: vcr.Run, tmp_path: Path) -> None:
    service = Service.open(run.path, journal=tmp_path / "kept.jsonl", token="s3cret")
    with serving(service) as client:
        assert client.get("/health").json()["token"] is True
        assert client.get("/").status_code == 200
        for header in (
            {},
            {"Authorization": "Bearer wrong"},
            {"Authorization": "Basic s3cret"},
            {"Authorization": "s3cret"},
        ):
            response = client.post("/predict", json={"nodes": ["n3"]}, headers=header)
            assert (response.status_code, response.headers["WWW-Authenticate"]) == (401, "Bearer")
        right = {"Authorization": "Bearer s3cret"}
        assert client.post("/predict", json={"nodes": ["n3"]}, headers=right).status_code == 200
        assert client.get("/metrics").status_code == client.get("/schema").status_code == 401
        assert "security" in client.get("/openapi.json").json()


def test_requests_share_batches_and_each_gets_its_own(service: Service) -> None:
    """While the first request is held up, others wait: all are answered by one pass, the wrong one alone fails."""
    held, going = threading.Event(), threading.Event()

    def hold(scorer: Any) -> None:
        going.set()
        held.wait()

    async def ask_all() -> list[httpx.Response]:
        transport = httpx.ASGITransport(make_app(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            service.worker.ask(hold)
            going.wait()
            names = [f"n{number}" for number in range(40)]
            names[7] = "nobody"
            tasks = [asyncio.create_task(client.post("/predict", json={"nodes": [name]})) for name in names]
            while service.worker.waiting < 40:
                await asyncio.sleep(0.01)
            held.set()
            return await asyncio.gather(*tasks)

    answers = asyncio.run(ask_all())
    assert [answer.status_code for answer in answers] == [400 if number == 7 else 200 for number in range(40)]
    for number, answer in enumerate(answers):
        if number != 7:
            alone = prediction_rows(service.worker.scorer.predict([f"n{number}"]))
            assert answer.json()["predictions"] == alone
    assert service.worker.batches <= 2
    service.worker.close()


def test_too_many_requests_wait(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    held = threading.Event()
    monkeypatch.setattr(workers, "MOST_WAITING", 1)
    small = workers.Worker(service.worker.scorer)
    going = threading.Event()

    def hold(scorer: Any) -> None:
        going.set()
        held.wait()

    small.ask(hold)
    going.wait()
    small.predict(["n1"])
    busy = replace(service, worker=small)
    with pytest.raises(workers.TooBusyError, match="try again later"):
        small.predict(["n2"])

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(make_app(busy))
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            return await client.post("/predict", json={"nodes": ["n1"]})

    assert asyncio.run(ask()).status_code == 429
    held.set()
    service.worker.close()
    small.close()


def test_another_run_takes_over(run: vcr.Run, tmp_path: Path) -> None:
    """The link leads to another run; nodes that were kept are kept there too, and written to its journal."""
    link = tmp_path / "current"
    link.symlink_to(run.path)
    (run.path / "kept.jsonl").unlink(missing_ok=True)
    grown = run.original.extend(names=["extra"], features=FEATURES[1:2], edges=(["extra"], ["n1"]))
    later = train(grown, CONFIG, tmp_path / "later")
    service = Service.open(link)
    with serving(service) as client:
        before = client.post("/predict", json={"graph": NEW, "keep": True}).json()
        service.reload()  # the same run: the journal goes on
        assert client.post("/predict", json={"nodes": ["x0"]}).json() == before
        link.unlink()
        link.symlink_to(later.path)
        service.reload()
        assert client.get("/health").json()["nodes"] == 152
        assert client.post("/predict", json={"nodes": ["x0", "extra"]}).status_code == 200
        lines = (later.path / "kept.jsonl").read_text().splitlines()
        assert json.loads(lines[1]) == NEW
        service.reload()  # its journal has the node already
        assert client.get("/health").json()["kept"] == 1
        shutil.copytree(later.path, tmp_path / "moved", ignore=shutil.ignore_patterns("kept.jsonl"))
        later.path.rename(tmp_path / "old")
        (tmp_path / "moved").rename(later.path)  # another folder of the same name, with a journal of its own
        service.reload()
        assert (later.path / "kept.jsonl").read_text().splitlines() == lines
        link.unlink()
        with pytest.raises(StoreError, match="is not a run folder"):
            service.reload()
        assert client.post("/predict", json={"nodes": ["x0"]}).status_code == 200
    (run.path / "kept.jsonl").unlink()


def test_other_tasks(tmp_path: Path) -> None:
    graph = named_graph()
    random = np.random.default_rng(0)
    several = replace(graph, labels=random.integers(0, 2, (150, 3)).astype(np.int8), task="multilabel")
    values = replace(graph, labels=random.normal(size=150).astype(np.float32), task="regression", class_names=None)
    rows = []
    for number, one in enumerate((several, values)):
        split = vcr.Split.random(one.labels, seed=0)
        config = replace(CONFIG, tokens=replace(CONFIG.tokens, content_tokens=0))
        run = vcr.train(one, split, config, tmp_path / str(number), device="cpu", baselines="none")
        rows.append(prediction_rows(run.predict([0]))[0])
    assert set(rows[0]) == {"node", "prediction", "probabilities"}
    assert isinstance(rows[0]["prediction"], list)
    assert set(rows[1]) == {"node", "prediction"}
    assert isinstance(rows[1]["prediction"], float)


def test_a_request_under_way_is_answered_after_sigterm(service: Service) -> None:
    held, release = threading.Event(), threading.Event()

    def hold(_: object) -> None:
        held.set()
        release.wait(60)

    with running(service) as server, ThreadPoolExecutor(1) as pool:
        port = server.servers[0].sockets[0].getsockname()[1]
        service.worker.ask(hold)
        held.wait()
        answer = pool.submit(httpx.post, f"http://127.0.0.1:{port}/predict", json={"nodes": ["n3"]}, timeout=60)
        while not service.worker.waiting:
            time.sleep(0.005)
        server.handle_exit(signal.SIGTERM, None)  # what uvicorn does at this signal
        while _takes_connections(port):
            time.sleep(0.005)
        early = answer.done()
        release.set()
        assert answer.result().status_code == 200
        assert answer.result().json()["predictions"][0]["node"] == "n3"
        assert not early


def _takes_connections(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=60).close()
    except OSError:
        return False
    return True
