"""The command `serve`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from ..errors import ConfigError, StoreError
from .options import RunFolder
from .output import say

TOKEN = "VCR_TOKEN"
_MOST_TOKEN = 1 << 13  # bytes; servers take no longer line of a header either


def serve(
    run: RunFolder,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address to listen on; 0.0.0.0 for all of this machine.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="PORT", help="Port to listen on; 0: any that is free.")] = 8000,
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help=f"File with the token that clients must send (or set {TOKEN})."),
    ] = None,
    journal: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File of kept nodes (default: kept.jsonl in the run folder).")
    ] = None,
    most_nodes: Annotated[int, typer.Option(metavar="N", help="Most nodes in one request.")] = 1000,
    most_edges: Annotated[int, typer.Option(metavar="N", help="Most edges in one request.")] = 10_000,
    most_bytes: Annotated[int, typer.Option(metavar="N", help="Most bytes in one request.")] = 8 << 20,
) -> None:
    """Answer predictions over HTTP, for known and for new nodes. SIGHUP opens the run folder anew."""
    token = read_token(token_file)
    try:
        from ..runs.serving.server import Service
        from ..runs.serving.server import serve as start
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "uvicorn"):
            raise
        raise ConfigError("serve needs starlette and uvicorn: pip install 'vcr-graphormer[serve]'") from error
    import torch

    from ..runs.serving.ports import bound, listen
    from ..runs.serving.requests import Sizes, check_sizes

    # More threads make single nodes no faster, and the bits of an answer would depend on their number.
    torch.set_num_threads(1)
    sizes = check_sizes(Sizes(body=most_bytes, nodes=most_nodes, edges=most_edges))
    with bound(host, port) as sockets:
        say(f"opening {run} …", err=True)
        service = Service.open(run, journal=journal, token=token, sizes=sizes)
        port = listen(sockets)
        scorer = service.worker.scorer
        kept = f" ({scorer.kept:,} of them kept)" if scorer.kept else ""
        who = "" if token else ", open to all who can reach it"
        shown = f"[{host}]" if ":" in host else host
        say(f"serving {scorer.num_nodes:,} nodes{kept} at http://{shown}:{port}{who}; stop with Ctrl-C", err=True)
        start(service, sockets)


def read_token(file: Path | None) -> str | None:
    """Return the token of a file, or of the environment; None if there is neither."""
    if file is None:
        return os.environ.get(TOKEN) or None
    from ..base.files import read_text

    try:
        token = read_text(file, most=_MOST_TOKEN).strip()
    except StoreError as error:
        raise StoreError(f"cannot read the token: {error}") from error
    if not token:
        raise ConfigError(f"{file} is empty: write a token into it, such as that of: openssl rand -hex 32")
    return token
