"""Helpers of the benchmarks that take training steps: a trainer of any size, times and memory."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

import vcr_graphormer as vcr
from vcr_graphormer.training.trainer import Trainer


def make_trainer(graph: vcr.Graph, split: vcr.Split, config: vcr.Config, inputs: vcr.Inputs) -> Trainer:
    """Return a trainer of a classification model with fresh weights of seed 0, on the device of the inputs."""
    training = replace(config.training, seed=0)
    trainer = Trainer.of(graph, split, inputs=inputs, model=config.model, training=training)
    trainer.model.train()
    return trainer


def wait(device: torch.device) -> None:
    """Wait until the GPU has done all its work; on a CPU there is nothing to wait for."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def median_ms(work: Callable[[], Any], device: torch.device, repeats: int) -> float:
    """Return the median time of one call, after some calls to warm up."""
    times = []
    warm_up = 6 if device.type == "cuda" else 2  # the trainer records a step on a GPU at its fourth call
    for number in range(repeats + warm_up):
        start = time.perf_counter()
        work()
        wait(device)
        if number >= warm_up:
            times.append(1000 * (time.perf_counter() - start))
    return float(np.median(times))


def peak_gigabytes(device: torch.device) -> float:
    """Return the peak memory: of the GPU since the last reset, or of this process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated() / 1e9
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def reset_peak(device: torch.device) -> None:
    """Start to measure the peak memory of a GPU anew."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()


def device_name(device: torch.device) -> str:
    """Return the name of a GPU, or `cpu`."""
    return torch.cuda.get_device_name() if device.type == "cuda" else "cpu"


def precision_name(precision: torch.dtype) -> str:
    """Return the name of a precision without `torch.`."""
    return str(precision).removeprefix("torch.")


def rounded(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with numbers of four significant digits: timings have no more."""
    return {key: float(f"{value:.4g}") if isinstance(value, float) else value for key, value in row.items()}
