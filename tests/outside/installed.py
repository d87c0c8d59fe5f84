"""Try an installed package as its users do. `make wheel-test` runs this far from the checkout, without any extra."""

import subprocess
import sys
import time
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path

EXTRAS = ("torch_geometric", "networkx", "tensorboard", "distributed", "optuna", "onnx", "starlette", "pandas")
HEAVY = ("torch", "numba", "pandas", "torch_geometric", "numpy", "scipy", "sklearn", "pyarrow", "distributed", "optuna")


def command(*words: str, status: int = 0) -> str:
    """Run the command line and return what it prints."""
    result = subprocess.run(["vcr-graphormer", *words], capture_output=True, text=True, check=False)
    assert result.returncode == status, f"{words}: {result.returncode}\n{result.stdout}{result.stderr}"
    return result.stdout + result.stderr


def main() -> None:
    """Import, list, train, predict, report; name what a missing extra gives."""
    start = time.perf_counter()
    import vcr_graphormer as vcr

    seconds = time.perf_counter() - start
    loaded = [name for name in HEAVY if name in sys.modules]
    assert not loaded, loaded
    print(f"import vcr_graphormer: {1000 * seconds:.0f} ms")
    assert "site-packages" in str(vcr.__file__), vcr.__file__
    assert distribution("vcr-graphormer").version == vcr.__version__
    present = [name for name in EXTRAS if find_spec(name)]
    print(f"extras that came along as dependencies of others: {', '.join(present) or 'none'}")
    assert not {"torch_geometric", "distributed", "optuna", "starlette", "pandas"} & set(present), present

    package = Path(str(vcr.__file__)).parent
    for pattern in ("py.typed", "runs/presets/*.toml", "runs/recipes/*.toml", "runs/serving/page.html"):
        assert list(package.glob(pattern)), f"the wheel lacks {pattern}"
    assert {file.suffix for file in (package / "report" / "templates").iterdir()} >= {".html", ".js", ".css"}

    for name in vcr.__all__:
        assert getattr(vcr, name) is not None
    assert command("--version") == f"vcr-graphormer {vcr.__version__}\n"
    assert "PubMed" in command("datasets")
    quick = ("--set", "training.epochs=3", "--set", "model.hidden_channels=16", "--device", "cpu")
    command("train", "--dataset", "digits", *quick, "--out", "run")
    assert "test" in command("evaluate", "run", "--device", "cpu")
    command("predict", "run", "--out", "predictions.parquet", "--device", "cpu")
    command("report", "run", "--device", "cpu")
    assert (Path("run") / "report.html").stat().st_size > 100_000
    assert "as it was written" in command("verify", "run")
    for words, extra in ((("serve", "run"), "serve"), (("export", "run"), "export")):
        assert f"pip install 'vcr-graphormer[{extra}]'" in command(*words, status=2)
    print("train, evaluate, predict, report and verify work; missing extras are named")


if __name__ == "__main__":
    main()
