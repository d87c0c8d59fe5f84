"""`serve` as a process of its own: kill -9 loses nothing, SIGTERM lets it finish, SIGHUP takes another run."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

import vcr_graphormer as vcr
from tests.runs.serving.test_scoring import FEATURES, train
from tests.support.command import run as call
from tests.support.runs import CONFIG, named_graph
from vcr_graphormer.cli.serve import read_token
from vcr_graphormer.errors import ConfigError, StoreError
from vcr_graphormer.runs.serving.ports import bound, listen


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> vcr.Run:
    return train(named_graph(), CONFIG, tmp_path_factory.mktemp("command") / "run")


class Server:
    """A process that serves, and a client of it."""

    def __init__(self, run: Path, *options: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        command = [sys.executable, "-m", "vcr_graphormer", "serve", str(run), "--port", str(self.port), *options]
        environment = {name: value for name, value in os.environ.items() if name != "VCR_TOKEN"}
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=60)
        while True:
            assert self.process.poll() is None, self.process.stderr and self.process.stderr.read()
            try:
                self.client.get("/health")
                return
            except httpx.TransportError:
                time.sleep(0.1)

    def end(self, how: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Send a signal and return the exit status and what was printed."""
        self.process.send_signal(how)
        _, text = self.process.communicate(timeout=120)
        self.client.close()
        return self.process.returncode, text


def new_node(name: str, neighbour: str) -> dict[str, Any]:
    node = {"id": name, "features": FEATURES[0].tolist()}
    return {"graph": {"nodes": [node], "edges": [{"source": name, "target": neighbour}]}, "keep": True}


def test_nothing_is_lost_by_kill(run: vcr.Run, tmp_path: Path) -> None:
    journal = ("--journal", str(tmp_path / "kept.jsonl"))
    server = Server(run.path, *journal)
    answers = [server.client.post("/predict", json=new_node(f"x{number}", "n5")).json() for number in range(5)]
    assert server.end(signal.SIGKILL)[0] == -signal.SIGKILL
    server = Server(run.path, *journal)
    assert server.client.get("/health").json()["kept"] == 5
    again = [server.client.post("/predict", json={"nodes": [f"x{number}"]}).json() for number in range(5)]
    assert again == answers
    code, text = server.end()
    assert code in (0, -signal.SIGTERM)
    assert f"155 nodes (5 of them kept) at http://127.0.0.1:{server.port}" in text
    assert "open to all who can reach it" in text
    assert "Traceback" not in text


def test_no_request_is_lost_while_a_run_is_replaced_and_sigterm_ends_the_server(run: vcr.Run, tmp_path: Path) -> None:
    link = tmp_path / "current"
    link.symlink_to(run.path)
    (tmp_path / "token").write_text("s3cret\n")
    server = Server(link, "--token-file", str(tmp_path / "token"), "--journal", str(tmp_path / "kept.jsonl"))
    headers = {"Authorization": "Bearer s3cret"}
    statuses, lost, ending = list[int](), list[httpx.TransportError](), threading.Event()

    def ask() -> None:
        with httpx.Client(base_url=str(server.client.base_url), timeout=60, headers=headers) as client:
            while True:
                try:
                    statuses.append(client.post("/predict", json={"nodes": ["n3", "n4"]}).status_code)
                except httpx.TransportError as error:
                    # After SIGTERM no connection is taken, and a request may meet a kept-alive one that is just closed.
                    if not ending.is_set():
                        lost.append(error)
                    return

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    grown = run.original.extend(names=["extra"], features=FEATURES[1:2], edges=(["extra"], ["n1"]))
    later = train(grown, CONFIG, tmp_path / "later")
    link.unlink()
    link.symlink_to(later.path)
    server.process.send_signal(signal.SIGHUP)
    while server.client.get("/health").json()["nodes"] != 151:
        time.sleep(0.05)
    assert server.client.post("/predict", json={"nodes": ["extra"]}, headers=headers).status_code == 200
    assert server.client.post("/predict", json={"nodes": ["extra"]}).status_code == 401
    ending.set()
    code, text = server.end()
    for thread in threads:
        thread.join()
    assert lost == []
    assert code in (0, -signal.SIGTERM)
    assert set(statuses) == {200}
    assert "now serving" in text
    assert "Traceback" not in text


def test_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VCR_TOKEN", raising=False)
    assert read_token(None) is None
    monkeypatch.setenv("VCR_TOKEN", "from outside")
    assert read_token(None) == "from outside"
    file = tmp_path / "token"
    with pytest.raises(StoreError, match="cannot read the token"):
        read_token(file)
    file.write_text("\n")
    with pytest.raises(ConfigError, match="is empty: write a token into it"):
        read_token(file)
    file.write_text("from a file\n")
    assert read_token(file) == "from a file"
    file.write_text("x" * 10_000)
    with pytest.raises(
        StoreError, match=r"cannot read the token: .* has 9\.8 KiB, more than the 8\.0 KiB that are read"
    ):
        read_token(file)
    os.mkfifo(tmp_path / "pipe")
    for endless in (Path("/dev/zero"), tmp_path / "pipe"):
        with pytest.raises(StoreError, match=f"cannot read the token: {endless} is not a file"):
            read_token(endless)


def test_wrong_options(run: vcr.Run, tmp_path: Path) -> None:
    assert "is not a run folder" in call("serve", str(tmp_path), code=2)
    text = call("serve", str(run.path), "--most-nodes", "0", code=2)
    assert "the largest number of nodes is 0; it must be 1 or more" in text
    for port in ("-1", "65536", "99999"):
        text = call("serve", str(run.path), "--port", port, code=2)
        assert text == f"error: the port is {port}; it must be 0 to 65535 (0: any that is free)\n"


@pytest.mark.parametrize("host", ["127.0.0.1", "nowhere.invalid", "..", "192.0.2.1"])
def test_nothing_is_announced_where_it_cannot_listen(host: str, run: vcr.Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        text = call("serve", str(run.path), "--host", host, "--port", str(port), code=2)
    assert text.startswith(f"error: cannot listen on {host} port {port}: ")
    assert text.endswith("; choose another --port or --host\n")
    assert text.count("\n") == 1


def test_a_port_that_another_one_was_quicker_to_listen_on() -> None:
    with bound("127.0.0.1", 0) as sockets, socket.socket() as other:
        port = sockets[0].getsockname()[1]
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))
        other.listen()
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1 port {port}: .* choose another --port"):
            listen(sockets)


def test_addresses_of_a_kind_that_the_machine_lacks_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    four, six = (socket.AF_INET, socket.SOCK_STREAM, 0, ""), (socket.AF_INET6, socket.SOCK_STREAM, 0, "")
    lacking = (*six, ("2001:db8::1", 0, 0, 0))  # an address of examples, which no machine has
    with ExitStack() as opened:
        with monkeypatch.context() as patch:
            patch.setattr(socket, "getaddrinfo", lambda *_, **__: [lacking, (*four, ("127.0.0.1", 0))])
            sockets = opened.enter_context(bound("both", 0))
        assert [one.family for one in sockets] == [socket.AF_INET]
        place = sockets[0].getsockname()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(place)
        assert listen(sockets) == place[1]
        socket.create_connection(place).close()
