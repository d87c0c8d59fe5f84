"""The page of the server: look a node up, see its prediction and its explanation. One file, no network but its own."""

from __future__ import annotations

import base64
import hashlib
import re
from importlib import resources

PAGE = (resources.files(__package__) / "page.html").read_text(encoding="utf-8")


def _hashes(tag: str) -> str:
    """Return the hashes of the page's own scripts or styles, so that a browser runs no others."""
    parts = re.findall(rf"<{tag}>(.*?)</{tag}>", PAGE, flags=re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(part.encode()).digest()).decode() for part in parts]
    return " ".join(f"'sha256-{digest}'" for digest in digests)


HEADERS = {
    "Content-Security-Policy": (
        f"default-src 'none'; connect-src 'self'; script-src {_hashes('script')}; style-src {_hashes('style')}; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
