"""Blocks of mask entries as rows of 64-bit words: any/all and deduplication at memory speed."""

import numpy as np
from numpy.typing import NDArray

from pallas_impl.mask_base import BoolArray
from pallas_impl.masks import DenseMask, unpack_bits

Words = NDArray[np.uint64]

_WORD_BYTES = 8
_HASH_SEED = 0x5B1A54
_MIX = np.uint64(0x9E3779B97F4A7C15)  # 2**64 / golden ratio, odd: multiplying is a bijection.


def pack_blocks(entries: BoolArray) -> Words:
    """Packs bool[n, block_q, block_kv] to uint64[n, words]; the last word is zero-padded."""
    n, block_q, block_kv = entries.shape
    return _to_words(np.packbits(entries.reshape(n, block_q * block_kv), axis=1))


def unpack_blocks(words: Words, block_shape: tuple[int, int]) -> BoolArray:
    """The inverse of `pack_blocks`: bool[n, block_q, block_kv]."""
    block_q, block_kv = block_shape
    bits = np.ascontiguousarray(words).view(np.uint8)
    return unpack_bits(bits, block_q * block_kv).reshape(len(words), block_q, block_kv)


def all_blocks(mask: DenseMask, block_shape: tuple[int, int]) -> Words:
    """Every block of a dense mask, row-major over blocks, packed: uint64[n_q * n_kv, words]."""
    block_q, block_kv = block_shape
    q_len, kv_len = mask.shape
    n_q, n_kv = q_len // block_q, kv_len // block_kv
    if block_kv % 8:
        tiles = mask[:].reshape(n_q, block_q, n_kv, block_kv).swapaxes(1, 2)
        return pack_blocks(tiles.reshape(-1, block_q, block_kv))
    tiles8 = mask.packed.reshape(n_q, block_q, n_kv, block_kv // 8).swapaxes(1, 2)
    return _to_words(tiles8.reshape(n_q * n_kv, -1))


def blocks_at(
    mask: DenseMask, block_shape: tuple[int, int], i: NDArray[np.int64], j: NDArray[np.int64]
) -> BoolArray:
    """The blocks (i[n], j[n]) of a dense mask: bool[n, block_q, block_kv]."""
    block_q, block_kv = block_shape
    if block_kv % 8:
        return mask[:].reshape(-1, block_q, mask.shape[1] // block_kv, block_kv)[i, :, j]
    tiles8 = mask.packed.reshape(-1, block_q, mask.shape[1] // block_kv, block_kv // 8)
    return unpack_bits(tiles8[i, :, j], block_kv)


def any_all(words: Words, block_shape: tuple[int, int]) -> tuple[BoolArray, BoolArray]:
    """Whether (any, all) entries of each packed block are True: bool[n] each."""
    ones = pack_blocks(np.ones((1, *block_shape), dtype=np.bool_))
    return words.any(axis=1), (words == ones).all(axis=1)


def deduplicate(words: Words) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Finds equal rows.

    Args:
      words: uint64[n, words].

    Returns:
      `(first, inverse)`: the row at which each distinct row is first seen, ascending, and for
      each row which of them it equals, so that `words[first][inverse]` is `words`.
    """
    first, inverse = _group(row_hashes(words))
    if not _equal_rows(words, first, inverse):
        # Two different rows share a hash: group by the rows themselves.
        rows = np.ascontiguousarray(words).view(
            np.dtype((np.void, words.itemsize * words.shape[1]))
        )
        first, inverse = _group(rows[:, 0])
    return first, inverse


def row_hashes(words: Words) -> Words:
    """A 64-bit hash of each row: uint64[n]. Equal rows have equal hashes."""
    factors = np.random.default_rng(_HASH_SEED).integers(
        2**64, size=words.shape[1], dtype=np.uint64
    )
    mixed = words ^ (words >> np.uint64(29))
    mixed *= _MIX
    # Bring the high bits down: a product keeps differences in high bits high.
    mixed ^= mixed >> np.uint64(32)
    mixed *= factors | np.uint64(1)
    hashes: Words = mixed.sum(axis=1, dtype=np.uint64)
    return hashes


def _group(keys: NDArray[np.generic]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    seen = np.argsort(first, kind="stable")
    rank = np.empty_like(seen)
    rank[seen] = np.arange(len(seen))
    return first[seen], rank[inverse.reshape(-1)]


def _equal_rows(words: Words, first: NDArray[np.int64], inverse: NDArray[np.int64]) -> bool:
    repeated = np.flatnonzero(first[inverse] != np.arange(len(words)))
    return np.array_equal(words[repeated], words[first[inverse[repeated]]])


def _to_words(packed: NDArray[np.uint8]) -> Words:
    padding = -packed.shape[1] % _WORD_BYTES
    if padding:
        packed = np.pad(packed, ((0, 0), (0, padding)))
    return np.ascontiguousarray(packed).view(np.uint64)
