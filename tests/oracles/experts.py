"""Twin of experts as one feed-forward part: token after token, each expert alone, in float64.

The router is written from `modeling_gemma4.py` of `transformers`, by which published weights were checked: it
reads the residual stream, before the norm that experts have.
"""

import math
from collections.abc import Mapping

import numpy as np


def output(weights: Mapping[str, np.ndarray], x: np.ndarray, *, per_token: int, count: int) -> np.ndarray:
    """The experts' addition to tokens `[n D]`, before the last norm; weights are by the product's fields."""
    rows = [_of_token(weights, row, per_token, count) for row in x.astype(np.float64)]
    return np.stack(rows)


def chosen(weights: Mapping[str, np.ndarray], row: np.ndarray, per_token: int) -> dict[int, float]:
    """The experts of one token, with their shares."""
    scores = (_normalized(row) * weights['router_scale'] / math.sqrt(len(row))) @ weights['router']
    # Python's sort keeps the order of equal scores.
    best = sorted(range(len(scores)), key=lambda expert: -scores[expert])[:per_token]
    sizes = [math.exp(scores[expert] - max(scores)) for expert in best]
    return {expert: size / sum(sizes) for expert, size in zip(best, sizes, strict=True)}


def _of_token(weights: Mapping[str, np.ndarray], row: np.ndarray, per_token: int, count: int) -> np.ndarray:
    entering = _normalized(row) * weights['experts_norm']
    hidden = weights['experts_down'].shape[0] // count
    total = np.zeros(len(row))
    for expert, share in chosen(weights, row, per_token).items():
        place = slice(expert * hidden, (expert + 1) * hidden)
        gates, ups = np.split(weights['experts_gate_up'], 2, axis=1)
        gate, up = entering @ gates[:, place], entering @ ups[:, place]
        gelu = 0.5 * gate * (1 + np.tanh(math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3)))
        passed = (gelu * up) @ weights['experts_down'][place]
        total += share * weights['experts_scale'][expert] * passed
    return _normalized(total) * weights['post_experts_norm']


def _normalized(x: np.ndarray) -> np.ndarray:
    return x / np.sqrt(np.mean(x**2) + 1e-6)
