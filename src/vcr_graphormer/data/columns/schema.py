"""`Schema`: how the columns of a table become features and class ids. Columns are found by name, never by place."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...base.problems import Problems
from ...errors import StoreError, unknown_name

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA_FILE = "schema.json"
NUMBER, FLAG, DATE, CATEGORY, TEXT, EMPTY = "number", "flag", "date", "category", "text", "empty"
OTHER = "other"  # the name of the column for rare values, and for those that were not there when the schema was learned
# A value of a category has a column of its own if at least so many rows, or this fraction of them, have it. Both are
# rules of thumb: from fewer rows a model learns nothing about the value.
LEAST_ROWS, LEAST_FRACTION = 10, 0.01
MOST_VALUES = 100  # columns per category, the most frequent values first
MOST_TEXTS = 5  # wrong entries of a column that are shown
MOST_PROPOSED = 50  # distinct texts up to which a column is proposed as a category
_VERSION = 1
_ROWS_AT_ONCE = 1 << 13
WORDS = {NUMBER: "numbers", FLAG: "true and false", DATE: "dates", CATEGORY: "categories", TEXT: "text"}
_PER_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
_MOST_FREE_CLASSES = 20  # different numbers up to which a label column may have mostly different ones
UNKNOWN = "-1"  # what arrays and some tables write for an unknown class
_DECIMAL_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+")
_DAY_FIRST = re.compile(r"\d{1,2}([./-])\d{1,2}\1\d{4}( \d{1,2}:\d{2}(:\d{2})?)?")
_FLAG = r"^(True|TRUE|False|FALSE)$"
_PANDAS_INDEX = re.compile(r"__index_level_\d+__|unnamed: 0|index|level_0|", re.IGNORECASE)


@dataclass(frozen=True)
class Column:
    """One column of a table that becomes one or several features.

    Attributes
    ----------
    name : str
        Its name in the table.
    type : str
        `number`, `flag` (true or false), `date` or `category`.
    values : tuple of str
        The values of a category that have a feature of their own.
    origin : float
        The day from which dates are counted, in days since 1970. Small numbers keep seconds apart in float32.
    """

    name: str
    type: str = NUMBER
    values: tuple[str, ...] = ()
    origin: float = 0.0

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Return the names of its features."""
        if self.type != CATEGORY:
            return (self.name,)
        return tuple(f"{self.name}={value}" for value in (*self.values, OTHER))


@dataclass(frozen=True)
class Schema:
    """The columns that become features, the column of ids, and that of labels with its classes.

    Attributes
    ----------
    columns : tuple of Column
        In the order of the features.
    id, label : str or None
        The columns of node ids and of labels.
    classes : tuple of str or None
        The name of each class id; None if labels are true and false, or targets of a regression.
    ignored : tuple of str
        Columns that were there and are not used.

    >>> schema = Schema((Column("age"), Column("country", "category", ("DE", "FR"))), id="account")
    >>> schema.feature_names
    ('age', 'country=DE', 'country=FR', 'country=other')
    >>> schema.encode_rows([{"age": 3, "country": "DE"}, {"age": None, "country": "XX"}])
    array([[ 3.,  1.,  0.,  0.],
           [nan,  0.,  0.,  1.]], dtype=float32)
    """

    columns: tuple[Column, ...] = ()
    id: str | None = None
    label: str | None = None
    classes: tuple[str, ...] | None = None
    ignored: tuple[str, ...] = field(default=())

    @classmethod
    def learn(
        cls,
        table: pa.Table,
        *,
        id: str | None = None,
        label: str | None = None,
        categories: Iterable[str] = (),
        drop: Iterable[str] = (),
        targets: bool = False,
        problems: Problems | None = None,
    ) -> Schema:
        """Decide what becomes of each column of a table. Of labels only the names of classes are read.

        Whole numbers are names of classes, too, so that 1 stays 1 in a later table. Beside two or more others, -1 is an
        unknown class.

        Parameters
        ----------
        id, label
            The columns of node ids and of labels, if the table has them.
        categories
            Columns whose values become one feature each. Text of other columns is not used; a note says so.
        drop
            Columns that are not used, without a note.
        targets
            Whether labels are numbers to be predicted (regression), and not classes.
        problems
            Collects problems and notes; without it, problems are raised as one error.
        """
        found = problems or Problems()
        categories, drop = tuple(categories), tuple(drop)
        for what, names in (("id", [id]), ("label", [label]), ("categories", categories), ("drop", drop)):
            for name in names:
                if name is not None and name not in table.column_names:
                    found.add(f"{what}: {unknown_name('column', name, table.column_names)}")
        for name, count in Counter(table.column_names).items():
            if count > 1:
                found.add(f"{count} columns have this name; rename all but one", column=name)
        used, ignored = [], []
        for name, values in zip(table.column_names, table.columns, strict=True):
            if name in (id, label) or table.column_names.count(name) > 1:
                continue
            column = None if name in drop else _learn_column(name, values, name in categories, problems=found)
            used.append(column) if column is not None else ignored.append(name)
        classes = None
        if label is not None and table.column_names.count(label) == 1:
            classes = _learn_classes(label, table.column(label), targets=targets, problems=found)
        schema = cls(tuple(used), id, label, classes, tuple(ignored))
        for name, count in Counter(schema.feature_names).items():
            if count > 1:
                found.add(f"{count} features would be called '{name}'; rename a column")
        if problems is None:
            found.raise_any()
        return schema

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Return one name per feature, in their order."""
        return tuple(name for column in self.columns for name in column.feature_names)

    def encode(self, table: pa.Table, problems: Problems | None = None) -> NDArray[np.float32]:
        """Return the features [rows, d] of a table whose columns may stand in any order.

        Numbers stay as they are, true is 1, dates become days, categories one column per value. A missing value is NaN;
        of a category, all its columns are 0.

        Parameters
        ----------
        problems
            Collects missing columns, other types and infinite numbers, and notes columns that the schema does not
            know; without it, problems are raised as one error.
        """
        found = problems or Problems()
        names = table.column_names
        places = {name: place for place, name in enumerate(names)}
        parts: list[tuple[Column, pa.ChunkedArray, slice]] = []
        width = 0
        for column in self.columns:
            part = slice(width, width := width + len(column.feature_names))
            if column.name not in places:
                found.add(f"the column '{column.name}' is missing; there are: {', '.join(names)}")
            elif (values := _checked(column, table.column(places[column.name]), found)) is not None:
                parts.append((column, values, part))
        features = np.full((len(table), width), np.nan, dtype=np.float32)
        # By blocks of rows that stay in the cache: a whole column would touch every line of the matrix.
        for start in range(0, len(table), _ROWS_AT_ONCE):
            block = features[start : start + _ROWS_AT_ONCE]
            for column, values, part in parts:
                _encode(column, values.slice(start, len(block)), out=block[:, part])
        _check_finite(features, parts, problems=found)
        known = {self.id, self.label, *self.ignored, *(column.name for column in self.columns)}
        for name in names:
            if name not in known:
                found.note("was not there in training and is ignored", column=name)
        if problems is None:
            found.raise_any()
        return features

    def encode_rows(self, rows: Sequence[Mapping[str, Any]], problems: Problems | None = None) -> NDArray[np.float32]:
        """Return the features of rows given as dictionaries, such as those of JSON; None is a missing value."""
        import pyarrow as pa

        found = problems or Problems()
        columns = {}
        for name in dict.fromkeys(name for row in rows for name in row):
            try:
                columns[name] = pa.array([row.get(name) for row in rows])
            except pa.ArrowException as error:
                found.add(f"its values are of different types ({error})", column=name)
                columns[name] = pa.nulls(len(rows))
        features = self.encode(pa.table(columns), found)
        if problems is None:
            found.raise_any()
        return features

    def encode_labels(self, table: pa.Table, problems: Problems | None = None) -> NDArray[Any] | None:
        """Return the labels of a table, or None if it has no column of labels.

        Names of classes become int64 class ids, -1 where one is missing. Without classes, numbers stay numbers:
        integers, or float64 with NaN where one is missing. A class that the schema does not know is a problem.
        """
        if self.label is None or self.label not in table.column_names:
            return None
        found = problems or Problems()
        values, type_ = table.column(self.label), _type_of(table.column(self.label).type)
        labels: NDArray[Any]
        if self.classes is not None:
            labels = _places(_texts(values), self.classes)
            unknown = distinct(values).keys() - set(self.classes)
            for name in sorted(unknown - {UNKNOWN} if type_ == NUMBER else unknown):
                found.add(f"unknown class '{name}'; the classes are {', '.join(self.classes)}", column=self.label)
        elif type_ in (NUMBER, FLAG, EMPTY):
            import pyarrow as pa

            labels = _numbers(values)
            if values.null_count == 0 and (pa.types.is_integer(values.type) or type_ == FLAG):
                labels = np.asarray(values.cast(pa.int64()).to_numpy())
        else:
            rule = "labels must be numbers" + ("" if type_ == TEXT else ", texts, or true and false")
            found.add(f"holds {WORDS.get(type_, type_)}; {rule}", column=self.label)
            labels = np.full(len(table), -1, dtype=np.int64)
        if problems is None:
            found.raise_any()
        return labels

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as plain values, for JSON."""
        columns = [
            {"name": column.name, "type": column.type, "values": list(column.values), "origin": column.origin}
            for column in self.columns
        ]
        classes = None if self.classes is None else list(self.classes)
        about = {"id": self.id, "label": self.label, "classes": classes, "ignored": list(self.ignored)}
        return {"version": _VERSION, **about, "columns": columns}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], source: str | Path = "the schema") -> Schema:
        """Return the schema that `to_dict` wrote; errors name the `source`."""
        if not isinstance(values, Mapping):
            raise StoreError(f"{source} is damaged: it is {values!r:.50}")
        if values.get("version") != _VERSION:
            raise StoreError(f"{source} has version {values.get('version')!r}; this package reads {_VERSION}")
        try:
            columns = tuple(
                Column(row["name"], row["type"], tuple(row["values"]), float(row["origin"]))
                for row in values["columns"]
            )
            classes = None if values["classes"] is None else tuple(values["classes"])
            schema = cls(columns, values["id"], values["label"], classes, tuple(values["ignored"]))
            texts = [*(classes or ()), *schema.ignored]
            texts += [text for column in columns for text in (column.name, column.type, *column.values)]
            texts += [text for text in (schema.id, schema.label) if text is not None]
            if wrong := [text for text in texts if not isinstance(text, str)]:
                raise TypeError(f"{wrong[0]!r} stands where a name must be")
            return schema
        except (KeyError, TypeError, ValueError) as error:
            raise StoreError(f"{source} is damaged: {type(error).__name__} {error}") from error


def _type_of(arrow: pa.DataType) -> str:
    """Return our type for a type of Arrow; its own name if we have none."""
    import pyarrow as pa

    types = pa.types
    if types.is_dictionary(arrow):
        return _type_of(arrow.value_type)
    if types.is_integer(arrow) or types.is_floating(arrow) or types.is_decimal(arrow):
        return NUMBER
    if types.is_boolean(arrow):
        return FLAG
    if types.is_timestamp(arrow) or types.is_date(arrow):
        return DATE
    if types.is_string(arrow) or types.is_large_string(arrow) or types.is_string_view(arrow):
        return TEXT
    return EMPTY if types.is_null(arrow) else str(arrow)


def _learn_column(name: str, values: pa.ChunkedArray, category: bool, *, problems: Problems) -> Column | None:
    """Return what becomes of a column; None, with a note or a problem, if it is not used."""
    type_ = _type_of(values.type)
    if type_ not in (NUMBER, FLAG, DATE, TEXT, EMPTY):
        problems.note(f"holds {type_}, which is not used", column=name)
        return None
    if values.null_count == len(values) and not category:
        problems.note("holds no values and is ignored", column=name)
        return None
    if category:
        return Column(name, CATEGORY, _learn_values(values))
    if _PANDAS_INDEX.fullmatch(name) and _counts_rows(name, values):
        problems.note("is the index of a pandas table and is ignored", column=name)
        return None
    if type_ == DATE:
        return Column(name, DATE, origin=float(np.floor(np.nanmin(_days(values)))))
    if type_ != TEXT:
        return Column(name, type_)
    counts = distinct(values)
    meant, others = meaning_of_texts(counts)
    if meant != TEXT:
        if not others:
            problems.note(f"holds {meant}s as text and is ignored; to use it, store {meant}s", column=name)
            return None
        shown = ", ".join(f"'{text}'" for text in others[:MOST_TEXTS]) + ", …" * (len(others) > MOST_TEXTS)
        problems.add(
            f"holds {meant}s, but also {shown}; correct or empty it, or name the column in categories or drop",
            row=_texts(values).index(others[0]).as_py(),
            column=name,
        )
        return None
    others = [text for text in counts if not is_number_text(text)]
    if all(_DECIMAL_COMMA.fullmatch(text) for text in others):
        problems.add(
            f"holds numbers with a decimal comma, such as '{others[0]}'; write a point, or name the column in "
            f"categories or drop",
            column=name,
        )
        return None
    if all(_DAY_FIRST.fullmatch(text) for text in counts):
        problems.add(
            f"holds dates such as '{next(iter(counts))}', where day and month can be mixed up; write 2024-01-31, or "
            f"name the column in categories or drop",
            column=name,
        )
        return None
    if len(counts) <= MOST_PROPOSED:
        problems.note(f'holds text and is ignored; to use it: categories = ["{name}"]', column=name)
    else:
        problems.note(f"holds text ({len(counts):,} different values) and is ignored", column=name)
    return None


def _learn_values(values: pa.ChunkedArray) -> tuple[str, ...]:
    """Return the values of a category that are not rare, in alphabetical order."""
    counts = distinct(values)
    least = min(LEAST_ROWS, LEAST_FRACTION * len(values))
    frequent = [value for value in sorted(counts) if counts[value] >= least and value != OTHER]
    frequent.sort(key=lambda value: -counts[value])
    return tuple(sorted(frequent[:MOST_VALUES]))


def _learn_classes(label: str, values: pa.ChunkedArray, *, targets: bool, problems: Problems) -> tuple[str, ...] | None:
    """Return the names of classes, texts in alphabetical order and numbers by size; None if there are none."""
    type_ = _type_of(values.type)
    if type_ == TEXT:
        return tuple(sorted(distinct(values)))
    if type_ != NUMBER or targets:
        return None
    numbers = _numbers(values)
    whole = np.isnan(numbers) | ((numbers == np.floor(numbers)) & (np.abs(numbers) < 2**53))
    regression = 'for numbers to be predicted set data.task = "regression"'
    if not whole.all():
        row = int(np.argmin(whole))
        text = f"the label is {numbers[row]:g}; classes are whole numbers or texts; {regression}"
        problems.add(text, row=row, column=label)
        return None
    numbered = np.unique(numbers[~np.isnan(numbers)]).astype(np.int64)
    if len(numbered) > _MOST_FREE_CLASSES and 2 * len(numbered) > np.count_nonzero(~np.isnan(numbers)):
        problems.add(f"holds {len(numbered):,} different numbers, too many for classes; {regression}", column=label)
        return None
    classes = [str(number) for number in numbered.tolist()]
    if UNKNOWN in classes and len(classes) > 2:
        classes.remove(UNKNOWN)
        problems.note("-1 is taken for an unknown label", column=label)
    return tuple(classes) or None


def _counts_rows(name: str, values: pa.ChunkedArray) -> bool:
    """Return whether a column holds 0, 1, 2, …, or is one that pandas itself named."""
    if name.startswith("__"):
        return True
    return _type_of(values.type) == NUMBER and np.array_equal(_numbers(values), np.arange(len(values)))


def is_number_text(text: str) -> bool:
    """Return whether a text is a number as Python reads it."""
    return _can_be(float, text)


def meaning_of_texts(counts: Mapping[str, int]) -> tuple[str, list[str]]:
    """Return what most texts of a column stand for, `number`, `date` or `text`, and the texts that do not.

    >>> meaning_of_texts({"3": 5, "4.5": 1, "unknown": 2})
    ('number', ['unknown'])
    """
    for meant, parse in ((NUMBER, float), (DATE, datetime.fromisoformat)):
        others = [text for text in counts if not _can_be(parse, text)]
        if 2 * sum(counts[text] for text in others) < sum(counts.values()):
            return meant, others
    return TEXT, []


def _can_be(parse: Callable[[str], object], text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True


def distinct(values: pa.ChunkedArray) -> dict[str, int]:
    """Return how often each value occurs, as text; missing values do not count."""
    from pyarrow import compute

    counted = compute.value_counts(_texts(values)).to_pylist()
    return {row["values"]: row["counts"] for row in counted if row["values"]}


def texts_of(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return values as texts without spaces around them; missing and empty ones are null.

    A whole number has one text, whatever its type: pandas makes floats of whole numbers where some are missing.
    """
    import pyarrow as pa
    from pyarrow import compute

    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if pa.types.is_floating(values.type):
        values = compute.if_else(compute.is_nan(values), None, values)
    if pa.types.is_floating(values.type) or pa.types.is_decimal(values.type):
        with suppress(pa.ArrowInvalid):  # not all are whole
            values = values.cast(pa.int64())
    if pa.types.is_floating(values.type):
        values = values.cast(pa.float64())
    texts = compute.utf8_trim_whitespace(values.cast(pa.string()))
    return compute.if_else(compute.equal(compute.binary_length(texts), 0), None, texts)


def _texts(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return values of a category or a label as texts, as `texts_of`.

    The text 3.0, a float in a text file, is 3; True is true, as flags of other files are.
    """
    from pyarrow import compute

    texts = texts_of(values)
    if compute.any(compute.match_substring_regex(texts, _FLAG)).as_py():
        texts = compute.if_else(compute.match_substring_regex(texts, _FLAG), compute.utf8_lower(texts), texts)
    if compute.any(compute.ends_with(texts, ".0")).as_py():
        texts = compute.replace_substring_regex(texts, r"^(-?(?:0|[1-9][0-9]*))\.0$", r"\1")
    return texts


def _places(texts: pa.ChunkedArray, known: Sequence[str]) -> NDArray[np.int64]:
    """Return the place of each text among the known ones, -1 where it is missing or unknown."""
    import pyarrow as pa
    from pyarrow import compute

    as_read = [text.lower() if re.fullmatch(_FLAG, text) else text for text in known]  # older runs have True
    places = compute.index_in(texts, value_set=pa.array(as_read, pa.string()), skip_nulls=True)
    return np.asarray(compute.fill_null(places, -1).to_numpy(), dtype=np.int64)


def _numbers(values: pa.ChunkedArray) -> NDArray[np.float64]:
    """Return numbers or flags as float64, NaN for missing ones."""
    import pyarrow as pa

    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    if not pa.types.is_floating(values.type):
        values = values.cast(pa.float64(), safe=False)
    return np.asarray(values.to_numpy(), dtype=np.float64)


def _days(values: pa.ChunkedArray) -> NDArray[np.float64]:
    """Return dates as days since 1970, in UTC if they have a time zone; NaN for missing ones."""
    import pyarrow as pa

    if pa.types.is_date(values.type):
        values = values.cast(pa.timestamp("ms"))
    return _numbers(values.cast(pa.int64())) / _PER_DAY[values.type.unit]


def _checked(column: Column, values: pa.ChunkedArray, problems: Problems) -> pa.ChunkedArray | None:
    """Return the values of a column if they have its type; None if all are missing, or with a problem."""
    import pyarrow as pa

    type_ = _type_of(values.type)
    if column.type == CATEGORY:
        if type_ in (NUMBER, FLAG, DATE, TEXT, EMPTY):
            return _texts(values)
        problems.add(f"must hold {WORDS[CATEGORY]}, but holds {type_}", column=column.name)
        return None
    if column.type == DATE and type_ == TEXT:  # JSON has no dates
        for zone in (None, "UTC"):
            with suppress(pa.ArrowInvalid):
                return values.cast(pa.timestamp("us", zone))
    if type_ == column.type:
        return values
    if type_ != EMPTY:
        problems.add(f"must hold {WORDS[column.type]}, but holds {WORDS.get(type_, type_)}", column=column.name)
    return None


def _encode(column: Column, values: pa.ChunkedArray, *, out: NDArray[np.float32]) -> None:
    """Write the features of one column to `out` [rows, width]."""
    if column.type == CATEGORY:
        places = _places(values, column.values)
        places[(places < 0) & values.is_valid().to_numpy()] = len(column.values)
        rows = np.flatnonzero(places >= 0)
        out[:] = 0.0
        out[rows, places[rows]] = 1.0
        return
    with np.errstate(over="ignore"):  # what does not fit float32 becomes infinite
        out[:, 0] = _days(values) - column.origin if column.type == DATE else _numbers(values)


def _check_finite(
    features: NDArray[np.float32], parts: Sequence[tuple[Column, pa.ChunkedArray, slice]], *, problems: Problems
) -> None:
    """Add a problem for each column that holds an infinite number."""
    infinite = np.zeros(features.shape[1], dtype=np.bool_)
    for start in range(0, len(features), _ROWS_AT_ONCE):
        infinite |= np.isinf(features[start : start + _ROWS_AT_ONCE]).any(axis=0)
    for column, values, part in parts:
        if infinite[part.start]:
            row = int(np.flatnonzero(np.isinf(features[:, part.start]))[0])
            value = values[row].as_py()
            problems.add(f"holds {value}; numbers must be finite (below 3e38)", row=row, column=column.name)
