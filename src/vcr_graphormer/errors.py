"""The errors of this package. Every message names the value, the rule and the way out."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

# Names less similar than this are not suggested; difflib's ratio, 1 for equal names.
_LEAST_SIMILARITY = 0.5


class VCRError(Exception):
    """Base of every error this package raises on purpose."""


class GraphError(VCRError, ValueError):
    """A graph, its features, labels or split break the data contract."""


class ConfigError(VCRError, ValueError):
    """A setting, an option or a name is unknown or out of range."""


class StoreError(VCRError, OSError):
    """A file or folder is missing, damaged, of another format or not ours to overwrite."""


class DaskError(VCRError, RuntimeError):
    """The dask scheduler or a worker cannot be reached, died, or runs another version."""


class TrainingError(VCRError, ArithmeticError):
    """Training failed: the loss is infinite or not a number."""


class ProcessError(VCRError, ConnectionError):
    """Another of the processes that train together failed or cannot be reached."""


# The first release used these names; they stay as aliases.
ClusterError = DaskError
RanksError = ProcessError


def unknown_name(kind: str, name: object, known: Iterable[str]) -> ConfigError:
    """Return the error for an unknown name; it suggests the nearest known one.

    >>> print(unknown_name("dataset", "PubMedd", ["PubMed", "CS"]))
    unknown dataset 'PubMedd'; did you mean 'PubMed'? (known: PubMed, CS)
    """
    names = list(known)
    by_lower_case = {candidate.lower(): candidate for candidate in names}
    nearest = difflib.get_close_matches(str(name).lower(), by_lower_case, n=1, cutoff=_LEAST_SIMILARITY)
    hint = f"; did you mean '{by_lower_case[nearest[0]]}'?" if nearest else ""
    return ConfigError(f"unknown {kind} '{name}'{hint} (known: {', '.join(names)})")
