from vcr_graphormer import ConfigError, DaskError, GraphError, StoreError, VCRError
from vcr_graphormer.errors import unknown_name


def test_kinds_are_also_the_builtin_ones_users_catch() -> None:
    assert issubclass(GraphError, (VCRError, ValueError))
    assert issubclass(ConfigError, (VCRError, ValueError))
    assert issubclass(StoreError, (VCRError, OSError))
    assert issubclass(DaskError, (VCRError, RuntimeError))


def test_nothing_near() -> None:
    assert str(unknown_name("dataset", "xyz", ["PubMed"])) == "unknown dataset 'xyz' (known: PubMed)"
