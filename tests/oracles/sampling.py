"""The binary tree of the sampler, with the exact number of random words that lead to each token."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np


@dataclasses.dataclass(frozen=True)
class SamplingTree:
    """The binary tree over float32 weights, each node with the draws that take its lighter side.

    Attributes:
        levels: Depth.
        left: For every level from the root, `[nodes]` float32 weight of the left side.
        right: The same of the right side.
        words_for_lighter: For every level, `[nodes]` number of 64-bit words, of 2^64,
            that take the lighter side (Python integers).
    """

    levels: int
    left: tuple[np.ndarray, ...]
    right: tuple[np.ndarray, ...]
    words_for_lighter: tuple[np.ndarray, ...]

    def walk(self, words: Sequence[int]) -> int:
        """The token that `levels` 64-bit words lead to."""
        node = 0
        for level, word in enumerate(words):
            lighter_is_right = self.right[level][node] < self.left[level][node]
            lighter = int(word) < self.words_for_lighter[level][node]
            node = 2 * node + (lighter == lighter_is_right)
        return int(node)

    def probabilities(self, size: int) -> np.ndarray:
        """`[size]` float64: the exact probability of every token under uniform words."""
        result = np.ones(1)
        for left, right, count in zip(self.left, self.right, self.words_for_lighter, strict=True):
            lighter = np.array([int(n) / 2**64 for n in count])
            heavier = np.array([(2**64 - int(n)) / 2**64 for n in count])
            take_right = np.where(right < left, lighter, heavier)
            take_left = np.where(right < left, heavier, lighter)
            result = np.stack([result * take_left, result * take_right], axis=-1).reshape(-1)
        if result[size:].any():
            raise ArithmeticError('Expected padding leaves to be out of reach.')
        return result[:size]


def word_to_uniform(words: np.ndarray) -> np.ndarray:
    """64-bit words to float32 uniforms, with every rounding of the device."""
    high = (words >> np.uint64(32)).astype(np.uint32).astype(np.float32)
    low = (words & np.uint64(2**32 - 1)).astype(np.uint32).astype(np.float32)
    return high * np.float32(2.0**-32) + (low + np.float32(0.5)) * np.float32(2.0**-64)


def sampling_tree(
    weights: np.ndarray, to_uniform: Callable[[np.ndarray], np.ndarray] = word_to_uniform
) -> SamplingTree:
    """Every node's lighter side as an exact number of 64-bit words, by bisection over the words.

    Args:
        weights: `[V]` float32, not normalised.
        to_uniform: Words to uniforms; another one than the default is a wrong generator.
    """
    levels = max(1, (len(weights) - 1).bit_length())
    layer = np.concatenate([weights.astype(np.float32), np.zeros(2**levels - len(weights), np.float32)])
    pairs = []
    for _ in range(levels):
        pairs.append(layer.reshape(-1, 2))
        layer = pairs[-1][:, 0] + pairs[-1][:, 1]  # float32, as on the device
    pairs.reverse()
    left, right = np.concatenate(pairs).T
    lighter, whole = np.minimum(left, right), left + right
    # The least word that does not take the lighter side; the condition is monotone in the word up to one
    # rounding of the uniform, 2^-23 of it. All nodes of all levels at once.
    count = np.zeros(len(lighter), np.uint64)
    for bit in reversed(range(64)):
        trial = count + np.uint64(2**bit)
        takes = to_uniform(trial - np.uint64(1)) * whole < lighter
        count = np.where(takes, trial, count)
    starts = [2**level - 1 for level in range(1, levels)]
    of_levels = [tuple(np.split(of_nodes, starts)) for of_nodes in (left, right, count)]
    return SamplingTree(levels, *of_levels)
