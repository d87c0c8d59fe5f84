"""From a PyG graph to predictions: train, look at three nodes, take the embeddings, open the run again.

python examples/quickstart_pyg.py                               # handwritten digits, nothing to download
python examples/quickstart_pyg.py --dataset Cora --root data    # PyG reads it, or downloads it, into data/
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
from torch_geometric.data import Data
from torch_geometric.datasets import Planetoid

import vcr_graphormer as vcr


def load(dataset: str, root: str | None) -> Data:
    """Any `Data` with x, edge_index and y will do; put your own here."""
    return vcr.digits().to_pyg() if root is None else Planetoid(root, dataset)[0]


def main() -> None:
    """Train on the graph and use what was learned."""
    parser = argparse.ArgumentParser(description="VCR-Graphormer on a PyG graph")
    parser.add_argument("--dataset", default="Cora", help="Cora, CiteSeer or PubMed; used where --root is given")
    parser.add_argument("--root", help="folder of PyG's datasets (default: the embedded digits)")
    parser.add_argument("--out", type=Path, help="folder for the run (default: a temporary one)")
    parser.add_argument("--epochs", type=int, default=20)
    arguments = parser.parse_args()

    data = load(arguments.dataset, arguments.root)
    print(f"in:  {data}")
    graph = vcr.Graph.from_pyg(data)
    print(f"out: {graph}")
    split = vcr.Split.random(graph.labels, train=0.6, val=0.2, seed=0)

    # Batch size, warm-up and other numbers that are not given are chosen for the graph.
    config = vcr.Config(model=vcr.ModelConfig(hidden_channels=64), training=vcr.TrainConfig(epochs=arguments.epochs))
    with tempfile.TemporaryDirectory() as temporary:
        out = (arguments.out or Path(temporary)) / "run"
        run = vcr.train(graph, split, config, out=out)
        print(f"test accuracy: {run.metrics['test']:.4f} (best of {run.metrics['epochs']} epochs by validation)")

        # Only test nodes: how sure the model is of nodes whose labels it has seen says little.
        predictions = run.predict(split.test[:3])
        for node, label, row in zip(predictions.nodes, predictions.labels, predictions.probabilities, strict=True):
            print(f"node {node}: class {label} with probability {row[label]:.3f}, in truth {int(data.y[node])}")
        print(f"embeddings: {run.embed().shape}")

        # The folder holds the graph, the token lists and the model: nothing above is needed to go on with it.
        again = vcr.Run.open(out).predict(split.test[:3])
        same = np.array_equal(again.labels, predictions.labels)
        print(f"opened again: {'the same' if same else 'other'} predictions from {out}")


if __name__ == "__main__":
    main()
