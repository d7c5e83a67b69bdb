"""Strategies of arguments from annotations, and arguments as Python text."""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, NamedTuple, NewType, SupportsIndex

import numpy as np
import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray

from conformance.fuzz_mask.arguments import tokens
from conformance.fuzz_mask.arguments.annotations import Underivable, parameters_of
from conformance.fuzz_mask.arguments.literals import literal
from conformance.fuzz_mask.arguments.names import content_of, sizes_of_number
from conformance.fuzz_mask.arguments.settings import Setting, block_settings, small_settings

Window = NewType("Window", int)
type Pair = tuple[int, int | None]
AT = Setting(6, 4, 2, 2)
FEW = settings(max_examples=60, database=None, deadline=None)


class Side(enum.Enum):
    LEFT = 1
    RIGHT = 2


class At:
    """Metadata as ``annotated_types`` has it."""

    def __init__(self, **bounds: int) -> None:
        vars(self).update(bounds)


def drawn(annotation: Any, name: str = "x", setting: Setting = AT) -> list[Any]:
    """Values of a parameter."""

    def make(**arguments: Any) -> None: ...

    make.__annotations__ = {name: annotation}
    parameter = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY)
    make.__signature__ = inspect.Signature([parameter])  # type: ignore[attr-defined]
    values: list[Any] = []
    (found,) = parameters_of(make)

    @FEW
    @given(found.values(setting))
    def collect(value: Any) -> None:
        values.append(value)

    collect()
    return values


@pytest.mark.parametrize(
    ("annotation", "name", "holds", "wanted"),
    [
        (tuple[int, int], "shape", lambda v: v == (6, 4), [(6, 4)]),
        (tuple[SupportsIndex, SupportsIndex], "shape", lambda v: v == (6, 4), []),
        (int, "q_seq_len", lambda v: v == 6, []),
        (int, "num_keys", lambda v: v == 4, []),
        (int, "seq_len", lambda v: v == 6, []),
        (int, "window", lambda v: type(v) is int, [0, 1, 2, 3, -1, 4, 6]),
        (Window, "w", lambda v: type(v) is int, [0, 1]),
        (bool, "causal", lambda v: type(v) is bool, [True, False]),
        (float, "density", lambda v: 0 <= v <= 1, [0.0, 1.0]),
        (int | None, "left", lambda v: v is None or type(v) is int, [None, 0]),
        (Pair, "window_size", lambda v: len(v) == 2, []),
        (tuple[int | None, int | None], "window_size", lambda v: len(v) == 2, []),
        (Literal["a", 2], "mode", lambda v: v in ("a", 2), ["a", 2]),
        (Side, "side", lambda v: isinstance(v, Side), [Side.LEFT, Side.RIGHT]),
        (Sequence[int], "global_tokens", lambda v: type(v) is tuple and list(v) == sorted(v), [()]),
        (list[int], "widths", lambda v: type(v) is list and len(v) <= 4, [[]]),
        (tuple[int, ...], "doc_lengths", lambda v: sum(v) in (6, 4) and min(v) > 0, [(6,), (4,)]),
        (Sequence[int], "segment_ids", lambda v: len(v) in (6, 4), []),
        (Sequence[bool], "valid", lambda v: {*map(type, v)} == {bool}, []),
        (np.ndarray, "ids", lambda v: v.shape in ((6,), (4,)) and v.dtype == np.int32, []),
        (NDArray[np.int64], "q_ids", lambda v: v.shape == (6,) and v.dtype == np.int64, []),
        (NDArray[np.bool_], "padding", lambda v: v.ndim == 1 and v.dtype == np.bool_, []),
        (NDArray[np.bool_], "array", lambda v: v.shape == (6, 4) and v.dtype == np.bool_, []),
        (ArrayLike, "kv_sequence", lambda v: v.shape == (4,) and len(set(v.tolist())) == 4, []),
        (ArrayLike | None, "q_sequence", lambda v: v is None or v.shape == (6,), [None]),
        (Annotated[int, At(ge=2, lt=5)], "n_hops", lambda v: 2 <= v < 5, [2, 4]),
        (Annotated[int, st.just(7)], "n_hops", lambda v: v == 7, []),
        (Callable[[int], int] | None, "rule", lambda v: v is None, []),
    ],
)  # fmt: skip
def test_values_follow_from_annotations(
    annotation: Any, name: str, holds: Callable[[Any], bool], wanted: list[Any]
) -> None:
    values = drawn(annotation, name)
    assert values
    assert all(map(holds, values))
    assert all(any(type(v) is type(w) and v == w for v in values) for w in wanted)


@pytest.mark.parametrize("annotation", [Any, str, object, Callable[[int], int], dict[str, int]])
def test_nothing_follows_from_others(annotation: Any) -> None:
    with pytest.raises(Underivable, match="rule: "):
        drawn(annotation, "rule")


def test_defaults_stand_in_for_annotations() -> None:
    def make(shape, offset=0, sides=(1, 2), rule=len, *more, **others) -> None: ...  # type: ignore[no-untyped-def]

    found = {p.name: p for p in parameters_of(make)}
    assert list(found) == ["shape", "offset", "sides", "rule"]
    assert found["shape"].sizes == "shape"
    assert found["rule"].recipe is None
    assert found["offset"].optional
    assert find(found["sides"].values(AT), lambda v: True) == (0, 0)
    assert parameters_of(make, given={"shape"})[0].recipe is None


class Tuple(NamedTuple):
    q_len: int
    kv_len: int
    side: Literal["left", "right"] = "left"


@dataclasses.dataclass
class Data:
    shape: tuple[int, int]
    side: Literal["left", "right"] = "left"


def test_constructors_of_every_kind() -> None:
    """`from __future__ import annotations` leaves text, in named tuples even of another module."""
    for make, sizes in (
        (Tuple, ["q_len", "kv_len", ""]),
        (Data, ["shape", ""]),
        (functools.partial(Data, side="right"), ["shape", ""]),
        (lambda shape, side="left": None, ["shape", ""]),
    ):
        found = parameters_of(make)
        assert [p.sizes for p in found] == sizes
        if not isinstance(make, type(lambda: None)):
            assert found[-1].recipe is not None
            assert find(found[-1].values(AT), lambda v: v == "right") == "right"


def test_annotations_for_type_checkers_only_are_left_out() -> None:
    def make(shape: tuple[int, int], other: Nowhere = None) -> None: ...  # type: ignore[name-defined] # noqa: F821

    found = parameters_of(make)
    assert [p.recipe is not None for p in found] == [True, False]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("segment_ids", "ids"), ("document_lengths", "lengths"), ("cu_seqlens", "indices"),
        ("q_sequence", "positions"), ("padding", "flags"), ("mask", "matrix"), ("bias", ""),
    ],
)  # fmt: skip
def test_names_tell_what_arrays_hold(name: str, content: str) -> None:
    assert content_of(name) == content


def test_names_of_numbers_that_are_no_lengths() -> None:
    names = ("block_q_size", "q_chunk_size", "window", "prefix_len", "k", "kv_heads", "size")
    assert [sizes_of_number(name) for name in names] == [""] * len(names)


@FEW
@given(small_settings())
def test_small_settings_are_small_and_stand_at_block_edges(setting: Setting) -> None:
    assert 1 <= min(setting.shape) <= max(setting.shape) <= 129
    assert setting.edges()[0] == 0
    assert {setting.q_len, setting.block_kv - 1, -setting.block_q} <= set(setting.edges())


def test_the_simplest_setting_is_the_smallest() -> None:
    assert find(small_settings(), lambda s: True).shape == (1, 1)
    assert find(small_settings(), lambda s: s.q_len < s.kv_len).shape == (1, 2)
    assert find(block_settings((128,), (128,), 3), lambda s: s.kv_len > s.q_len).shape == (128, 256)


def test_long_arrays_change_beside_block_edges() -> None:
    ends: set[int] = set()

    @FEW
    @given(tokens.ids(512, 128))
    def collect(ids: Any) -> None:
        assert ids.shape == (512,)
        ends.update((np.flatnonzero(np.diff(ids)) + 1).tolist())

    collect()
    assert (
        {127, 128, 129, 256}
        <= ends
        <= {n + d for n in (128, 256, 384, 512) for d in (-1, 0, 1)} | {1}
    )


def test_zigzag_deals_out_the_same_work() -> None:
    assert tokens.zigzag(8, 2).tolist() == [0, 1, 6, 7, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "value",
    [
        1, None, "a", (1,), (1, None), [1, 2], {"a": (1, 2)}, True,
        np.array([True, False]), np.array([1, 2], dtype=np.int32), np.array([[1, 2]]),
        np.arange(128, dtype=np.int32), np.arange(5, 205), np.repeat([1, 2], [100, 28]).astype(np.int32),
        np.tri(20, 30, dtype=np.bool_), np.array([0.5, 1.0]), [0] * 50 + [1] * 50,
    ],
    ids=lambda value: literal(value)[:20],
)  # fmt: skip
def test_literals_make_the_value_again(value: Any) -> None:
    again = eval(literal(value), {"np": np})
    assert type(again) is type(value)
    if isinstance(value, np.ndarray):
        assert again.dtype == value.dtype
    np.testing.assert_equal(again, value)


def test_literals_are_short() -> None:
    assert literal(np.arange(300, dtype=np.int32)) == "np.arange(300, dtype=np.int32)"
    ids = np.repeat([3, 0], [100, 200]).astype(np.int32)
    assert literal(ids) == "np.repeat(np.array([3, 0], dtype=np.int32), [100, 200])"
    assert literal((np.int64(3), np.True_, Side.LEFT)) == "(3, True, Side.LEFT)"
