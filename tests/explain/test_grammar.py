"""Masks as they are written on the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from conformance.explain.blocks.survey import Cut, visible_pairs
from conformance.explain.language.expressions import (
    Claimed,
    Documents,
    Function,
    Prefix,
    ReadOff,
    Tiles,
    is_structured,
)
from conformance.explain.language.grammar import MaskError, number, parse
from conformance.explain.language.segments import segments
from conformance.problems.mask_json import Random
from reference.masks import And, Causal, ChunkedCausal, Dense, Expr, Full, Local, Mask, Or

CAUSAL, BAND, PREFIX = Causal(), Local(1024, 0), Prefix(100)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("causal", CAUSAL),
        (" Causal ", CAUSAL),
        ("causal:-128", Causal(-128)),
        ("causal:offset=3", Causal(3)),
        ("full", Full()),
        ("local:1024,0", BAND),
        ("local:none,5", Local(None, 5)),
        ("local:1k, none, 7", Local(1024, None, 7)),
        ("chunked:8192", ChunkedCausal(8192)),
        ("chunked:8_192", ChunkedCausal(8192)),
        ("chunked:8k", ChunkedCausal(8192)),
        ("chunked:1.5k", ChunkedCausal(1536)),
        ("random:0.9", Random(0.1)),
        ("random:.25,seed=7", Random(0.75, 7)),
        ("random:0.9,block=128,seed=3", Tiles(0.1, 128, 3)),
        ("random:1", Random(0.0)),
        ("documents:4,8", Documents((4, 8))),
        ("docs:4", Documents((4,))),
        ("prefix:100+causal", Or(PREFIX, CAUSAL)),
        ("causal & local:1024,0", And(CAUSAL, BAND)),
        ("full | causal & local:1024,0", Or(Full(), And(CAUSAL, BAND))),
        ("full & prefix:100+causal", And(Full(), Or(PREFIX, CAUSAL))),
        ("(full | causal) & local:1024,0", And(Or(Full(), CAUSAL), BAND)),
        ("((causal))", CAUSAL),
    ],
)
def test_what_is_written_is_what_is_meant(text: str, expected: Expr) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    ("text", "message", "column", "size"),
    [
        ("casual", "unknown mask 'casual'; did you mean causal?", 0, 6),
        ("causal & lokal:1,0", "unknown mask 'lokal'; did you mean local?", 9, 5),
        ("zzz", "known masks: full, causal, local", 0, 3),
        ("causal &", "a mask is missing here", 8, 1),
        ("", "a mask is missing here", 0, 1),
        ("(causal | full", "this parenthesis is never closed", 0, 1),
        ("causal full", "expected &, | or + before 'full'", 7, 1),
        ("local:1024", "local needs right: local:left,right", 0, 10),
        ("local:x,0", "left: expected a number or none", 6, 1),
        ("causal:none", "offset: expected a number", 7, 4),
        ("causal:1,2", "too many values", 9, 1),
        ("full:3", "too many values", 5, 1),
        ("causal:", "offset: a number is missing here", 7, 1),
        ("prefix:1.5", "length: must be a whole number", 7, 3),
        ("random:0.9,1.5", "block: must be a whole number", 11, 3),
        ("causal:offst=3", "unknown value 'offst': expected offset", 7, 5),
        ("random:0.9,share=2", "share is given twice", 11, 5),
        ("random:seed=1,0.5", "must come before named ones", 14, 1),
        ("random:1.5", "must lie between 0 and 1, got 1.5", 0, 10),
        ("full&chunked:0", "chunk_size must be at least 1", 5, 9),
        ("prefix:-1", "must not be negative", 0, 9),
        ("&", "expected a mask, got '&'", 0, 1),
        ("there/is/none.npy", "no such file: there/is/none.npy", 0, 17),
        ("causal & none.py:f(1)", "no such file: none.py", 9, 12),
        ("none.py", "none.py needs the name of a mask", 7, 1),
        ("none.py:f(1, (2)", "this parenthesis is never closed", 9, 1),
        ("'my file.npy", "this quotation mark is never closed", 0, 1),
    ],
)
def test_errors_point_at_what_is_wrong(text: str, message: str, column: int, size: int) -> None:
    with pytest.raises(MaskError) as caught:
        parse(text)
    assert message in caught.value.message
    assert (caught.value.column, caught.value.size) == (column, size)
    assert str(caught.value).endswith(f"\n  {text}\n  {' ' * column}{'^' * size}")


def test_numbers() -> None:
    found = [number(text) for text in ("8192", "8_192", "8k", "1M", "-3", ".5")]
    assert found == [8192, 8192, 8192, 1 << 20, -3, 0.5]
    with pytest.raises(ValueError, match="expected a number, got '8q'"):
        number("8q")


def test_stored_arrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    array = np.tri(4, 6, dtype=np.bool_)
    for name, stored in (("a", array), ("my b", array.astype(np.int8)), ("c-1.0+x", array[None])):
        np.save(f"{name}.npy", stored)
    assert parse("a.npy") == Dense(array)
    assert parse("a.npy & causal") == And(Dense(array), CAUSAL)
    assert parse("'my b.npy'|full") == Or(Dense(array), Full())
    assert parse("'c-1.0+x.npy'") == Dense(array)
    assert parse("prefix:1+a.npy") == Or(Prefix(1), Dense(array))
    assert parse(f"{tmp_path}/a.npy") == Dense(array)
    np.save("d.npy", np.arange(4.0).reshape(2, 2))
    np.save("e.npy", array[0])
    Path("f.npy").write_text("no array")
    for name, message in (
        ("d", "must hold booleans, or 0 and 1 only"),
        ("e", r"must be an array \(q_len, kv_len\), got shape \(6,\)"),
        ("f", "is not an array that NumPy can read"),
        ("ab", r"no such file: ab.npy; did you mean a.npy\?"),
    ):
        with pytest.raises(MaskError, match=message):
            parse(f"{name}.npy")


MINE = """
import numpy as np
from reference.masks import Causal

ARRAY = np.eye(4, dtype=bool)
EXPR = Causal(2)


def stripes(q_ids, kv_ids):
    return (q_ids + kv_ids) % 2 == 0


class Sliced:
    def __init__(self, shape, step=1):
        self.shape, self.step = shape, step

    def __getitem__(self, index):
        rows, columns = (np.arange(n)[part] for n, part in zip(self.shape, index))
        return rows[:, None] % self.step == columns[None, :] % self.step


class Computed(Sliced):
    mask_function = None


class Numbers(Sliced):
    def __getitem__(self, index):
        return super().__getitem__(index).astype(int)


class Broken(Sliced):
    def __getitem__(self, index):
        raise KeyError("no")


NUMBER = 3
"""


CLAIMING = """
class Claiming:
    def __init__(self, shape):
        self.shape = shape

    def __getitem__(self, index):
        raise AssertionError("too long to be read")

    def visible(self, q_ids, kv_ids):
        return (kv_ids < 3000) | (kv_ids <= q_ids + 5)

    def block_bounds(self, q_lo, q_hi, kv_lo, kv_hi):
        return (kv_lo < 3000) | (kv_lo <= q_hi + 5), kv_hi <= np.maximum(2999, q_lo + 5)

    def kv_intervals(self, q_ids):
        return np.zeros_like(q_ids)[None], np.maximum(2999, q_ids + 5)[None]


class BoundsOnly(Claiming):
    def kv_intervals(self, q_ids):
        return None


class NoBounds(Claiming):
    def block_bounds(self, q_lo, q_hi, kv_lo, kv_hi):
        return None


class Ordered(Claiming):
    q_sequence = [1, 0]
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "my-masks.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    return "my-masks.py"


def test_masks_of_somebody_else(mine: str) -> None:
    assert parse(f"{mine}:EXPR") == Causal(2)
    assert parse(f"{mine}:ARRAY & causal") == And(Dense(np.eye(4, dtype=np.bool_)), CAUSAL)
    stripes = parse(f"{mine}:stripes")
    assert isinstance(stripes, Function)
    assert Mask(stripes, 2, 2).dense().tolist() == [[True, False], [False, True]]
    expected = (np.arange(6)[:, None] % 2) == (np.arange(8)[None] % 2)
    for call in ("Sliced((6, 8), 2)", "Sliced(shape, step=2)", "Sliced((q_len, kv_len), 2)"):
        found = parse(f"{mine}:{call}", 6, 8)
        assert isinstance(found, Dense)
        assert found.array.tolist() == expected.tolist()
        assert not found.computable
    computed = parse(f"causal | {mine}:Computed(shape)", 6, 8)
    assert isinstance(computed, Or)
    assert isinstance(computed.right, ReadOff)
    assert computed.right.computable


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("Slised(shape)", "has no attribute 'Slised'; did you mean Sliced"),
        ("Sliced", "is a class: write my-masks.py:Sliced"),
        (
            "Sliced(foo)",
            "arguments must be literals or one of q_len, kv_len, seq, shape, got 'foo'",
        ),
        ("Sliced(1 +)", "is not a call"),
        ("Sliced(q_len)", r"must have a shape \(q_len, kv_len\), got \(6,\)"),
        ("Numbers(shape)", r"must be boolean of shape \(6, 8\), got int64"),
        ("Broken(shape)", r"\[0:6, 0:8\] raised KeyError"),
        ("Sliced()", "raised TypeError: .*missing 1 required positional argument"),
        ("NUMBER", "must be a mask expression, an object with shape"),
        ("", "the name of a mask is missing here"),
    ],
)
def test_what_is_no_mask(mine: str, call: str, message: str) -> None:
    with pytest.raises(MaskError, match=message):
        parse(f"{mine}:{call}", 6, 8)


def test_long_masks_that_tell_of_themselves_are_believed(mine: str) -> None:
    with open(mine, "a", encoding="utf-8") as file:
        file.write(CLAIMING)
    length = 1 << 17
    same = Cut(Causal(5) | Prefix(3000), length, length, 1024, 1024)
    for name, structured in (("BoundsOnly", False), ("Claiming", True)):
        found = parse(f"{mine}:{name}(shape)", length, length)
        assert isinstance(found, Claimed)
        assert found.computable
        assert is_structured(found) == structured
        cut = Cut(found, length, length, 1024, 1024)
        labels = cut.labels()
        assert labels.tolist() == same.labels().tolist()
        ids, distinct = cut.partial_ids(labels)
        expected = same.partial_ids(labels)
        assert (ids.tolist(), distinct) == (expected[0].tolist(), expected[1])
    assert visible_pairs(found, length, length) == visible_pairs(same.expr, length, length)
    with pytest.raises(ValueError, match="has shape"):
        Mask(found, 8, 8)
    for broken in ("NoBounds", "Ordered"):
        with pytest.raises(MaskError, match="too many to read by slices"):
            parse(f"{mine}:{broken}(shape)", length, length)


def test_lengths_have_to_be_known_where_they_are_used(mine: str) -> None:
    with pytest.raises(MaskError, match="shape is not known without --seq"):
        parse(f"{mine}:Sliced(shape)")


def test_files_that_cannot_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.py").write_text("import no_such_module")
    with pytest.raises(MaskError, match=r"bad.py fails on import: ModuleNotFoundError"):
        parse("bad.py:mask")


def test_segment_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert segments("any", 8, 8) is None
    assert segments("4", 8, 8) == Documents((4,))
    assert segments("2, 6", 8, 8) == Documents((2, 6))
    np.save("runs.npy", np.array([5, 5, 1, 7, 7, 7]))
    assert segments("runs.npy", 6, 6) == Documents((2, 1, 3))
    ids = np.array([[0, 1, 0, 1], [1, 1, 0, 0]])
    np.save("pair.npy", ids)
    scattered = segments("pair.npy", 4, 4)
    assert scattered is not None
    assert Mask(scattered, 4, 4).dense().tolist() == (ids[0][:, None] == ids[1][None]).tolist()
    for text, message in (
        ("3,4", "documents must add up to the 8 tokens of the sequence, got 7"),
        ("x", "expected any, a length, lengths with commas between them, or a file.npy"),
        ("1.5", "must be whole numbers"),
        ("runs.npy", r"must hold ids \[8\] or \[2, 8\]"),
        ("none.npy", "no such file: none.npy"),
    ):
        with pytest.raises(ValueError, match=message):
            segments(text, 8, 8)
