"""Download the raw files of published datasets, each whole or not at all. Nothing in them is run."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path

from ...base.files import replace_file
from ...errors import StoreError

_SECONDS_TO_ANSWER = 60


def download(urls: Mapping[str, str], folder: Path) -> None:
    """Download the files that are missing in a folder.

    Parameters
    ----------
    urls
        The https address of each file, by its name. One that ends in `.zip` is that of an archive with this file in it.
    """
    from urllib.error import HTTPError, URLError
    from urllib.request import urlopen

    for name, url in urls.items():
        if (folder / name).is_file():
            continue
        archive = folder / Path(url).name if url.endswith(".zip") else folder / name
        try:
            if not archive.is_file():
                with (
                    urlopen(url, timeout=_SECONDS_TO_ANSWER) as answer,
                    replace_file(archive) as temporary,
                    temporary.open("wb") as file,
                ):
                    shutil.copyfileobj(answer, file)
            if archive.suffix == ".zip":
                with (
                    zipfile.ZipFile(archive) as content,
                    content.open(name) as member,
                    replace_file(folder / name) as temporary,
                    temporary.open("wb") as file,
                ):
                    shutil.copyfileobj(member, file)
        except (URLError, OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
            reason = getattr(error, "reason", None) or error
            if isinstance(error, HTTPError):
                error.close()  # it is the answer of the server, too
            raise StoreError(
                f"{folder / name} is missing and could not be downloaded from {url} ({reason}): put it there yourself"
            ) from error
