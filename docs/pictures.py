"""Draw the pictures of the docs from real data.

python docs/pictures.py                             # digits.png: the embedded graph
python docs/pictures.py --report FILE --node 7      # report.png: the explorer of FILE, made by vcr-graphormer report
"""

import argparse
from pathlib import Path

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.collections import LineCollection
from matplotlib.offsetbox import AnnotationBbox, OffsetImage
from PIL import Image
from sklearn.manifold import TSNE

import vcr_graphormer as vcr

# Okabe and Ito's colours, told apart by colour-blind readers, and two greys.
COLOURS = ["#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#000000", "#999999", "#8B5A2B"]


def draw_digits(file: Path) -> None:
    """Draw the embedded graph: similar images close together, linked to their mutual nearest neighbours."""
    graph = vcr.digits()
    features, labels = np.asarray(graph.features), np.asarray(graph.labels)
    places = TSNE(init="pca", random_state=0).fit_transform(features)
    rows = np.repeat(np.arange(graph.num_nodes), graph.degrees)
    figure, axes = plt.subplots(figsize=(10, 6.2), dpi=110)
    axes.add_collection(LineCollection(places[np.stack([rows, graph.indices], axis=1)], colors="#bbbbbb", lw=0.3))
    for digit in range(10):
        chosen = places[labels == digit]
        axes.scatter(chosen[:, 0], chosen[:, 1], s=7, color=COLOURS[digit], label=str(digit), zorder=2)
    for node in np.random.default_rng(0).choice(graph.num_nodes, 60, replace=False):
        image = OffsetImage(16 - features[node].reshape(8, 8) * 16, zoom=2.2, cmap="gray")
        frame = {"edgecolor": COLOURS[labels[node]], "linewidth": 1.2}
        axes.add_artist(AnnotationBbox(image, places[node], pad=0.08, bboxprops=frame))
    axes.set_title(f"digits: 1,797 handwritten digits, {graph.num_edges:,} edges between mutual nearest neighbours")
    axes.legend(title="label", loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    axes.autoscale()
    axes.set_axis_off()
    figure.savefig(file, bbox_inches="tight")


def photograph_report(report: Path, node: int, file: Path) -> None:
    """Take a picture of a report's token explorer in a browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1180, "height": 1085}, device_scale_factor=1.5)
        page.goto(f"{report.resolve().as_uri()}#node={node}")
        page.locator(".graph .token").first.wait_for()
        page.evaluate("document.getElementById('explorer-title').scrollIntoView()")
        page.screenshot(path=file)
        browser.close()
    colours = Image.open(file).convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE)
    colours.save(file, optimize=True)  # less than half of the bytes


def main() -> None:
    """Draw what is asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--report", type=Path)
    parser.add_argument("--node", type=int, default=0, help="the node shown")
    arguments, folder = parser.parse_args(), Path(__file__).parent
    if arguments.report is not None:
        photograph_report(arguments.report, arguments.node, folder / "report.png")
    else:
        draw_digits(folder / "digits.png")


if __name__ == "__main__":
    main()
