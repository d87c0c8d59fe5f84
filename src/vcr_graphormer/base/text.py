"""Write texts: names from data made harmless on a terminal, in a csv file and in HTML; choices."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

# C0 and C1 control characters, line separators, marks that reverse the direction of text, halves of surrogate pairs.
_STEERING = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
# What spreadsheets take for a formula, full-width signs of Asian keyboards included. Apostrophes before it count as
# part of it: so every such text gets one more, and taking one away gives back the text.
_FORMULA = re.compile("'*\\s*[=+\\-@＝＋－＠]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def printable(text: object, keep: str = "") -> str:
    r"""Return a text in which characters that steer a terminal are spelled out; those in `keep` stay.

    >>> print(printable("anna\x1b[2J"), printable("two\nlines"), printable("Zoë"))
    anna\x1b[2J two\x0alines Zoë
    """

    def spell(match: re.Match[str]) -> str:
        code = ord(match[0])
        return match[0] if match[0] in keep else f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"

    return _STEERING.sub(spell, str(text))


def csv_cell(text: str) -> str:
    """Return a text that a spreadsheet does not run as a formula, and that does not steer a terminal.

    A text that looks like a formula gets an apostrophe in front. Numbers stay as they are.

    >>> csv_cell("=1+1"), csv_cell("-1.5"), csv_cell("anna")
    ("'=1+1", '-1.5', 'anna')
    """
    safe = printable(text)
    return f"'{safe}" if _FORMULA.match(safe) and not _NUMBER.fullmatch(safe) else safe


def read_csv_cell(text: str) -> str:
    """Return the text that `csv_cell` was given, unless that had control characters.

    >>> read_csv_cell("'=1+1"), read_csv_cell("'tis")
    ('=1+1', "'tis")
    """
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text


def one_of(words: tuple[str, ...]) -> str:
    """Return words as a choice.

    >>> one_of((".csv", ".npz", ".npy"))
    '.csv, .npz or .npy'
    """
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def html_table(
    title: str, rows: Iterable[Sequence[object]], header: Sequence[str] = (), notes: Sequence[str] = ()
) -> str:
    """Return a small HTML table for notebooks; everything is escaped, and colours are those of the page.

    The first column is text, the others are numbers if there is a `header`.
    """

    def cell(value: object, tag: str, align: str) -> str:
        style = f"text-align:{align};padding:2px 10px;background:transparent"
        return f'<{tag} style="{style}">{html.escape(printable(value))}</{tag}>'

    def line(values: Sequence[object], tag: str) -> str:
        aligns = ["left", *(["right" if header else "left"] * (len(values) - 1))]
        cells = (cell(value, tag, align) for value, align in zip(values, aligns, strict=True))
        return f'<tr style="background:transparent">{"".join(cells)}</tr>'

    head = f"<thead>{line(header, 'th')}</thead>" if header else ""
    body = "".join(line(row, "td") for row in rows)
    below = "".join(f'<div style="opacity:.75;padding:2px 10px">{html.escape(printable(note))}</div>' for note in notes)
    return (
        '<div style="color:inherit;overflow-x:auto">'
        f'<div style="font-weight:bold;padding:2px 10px">{html.escape(printable(title))}</div>'
        '<table style="border-collapse:collapse;border:0;color:inherit;font-size:inherit">'
        f"{head}<tbody>{body}</tbody></table>{below}</div>"
    )
