"""Texts as tokens that a constraint allows."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from models.constraints.constraint import Constraint, look, step


def spell(text: bytes, constraint: Constraint, token_bytes: Sequence[bytes]) -> np.ndarray:
    """A text as tokens that a constraint allows one after another, the longest at each place, `[n]` int32.

    Args:
        text: Its bytes.
        constraint: Of a whole example; forced tokens are taken as they are.
        token_bytes: Of every token; b'' for one that is no text.

    Returns:
        Empty where the constraint does not allow the text.
    """
    state, found, rest = constraint.start(), list[int](), text
    while rest:
        allowed, forced = look(constraint, state)
        if forced is not None and int(forced) >= 0:
            token = int(forced)
        else:
            ids = np.flatnonzero(np.asarray(allowed)).tolist()
            fitting = [i for i in ids if token_bytes[i] and rest.startswith(token_bytes[i])]
            token = max(fitting, key=lambda i: len(token_bytes[i]), default=-1)
        if token < 0 or not token_bytes[token] or not rest.startswith(token_bytes[token]):
            return np.zeros(0, np.int32)
        found.append(token)
        rest = rest[len(token_bytes[token]) :]
        state = step(constraint, state, jnp.int32(token))
    return np.array(found, np.int32)
