"""Bounds of the log ratios that an audit may find, from the public settings and an output."""

import numpy as np

from models.generate.stream import TokenStream
from models.privacy import accounting, ex_post
from models.privacy.params import MechanismParams


def output_bound(stream: TokenStream, params: MechanismParams) -> float:
    """The most that an output may cost: see `leave_one_out.LeaveOneOut.bound`."""
    # A forced token has neither flag nor loss.
    flags = stream.is_private[stream.is_chosen]
    count = len(flags)
    losses = np.zeros((2, count)) if stream.losses is None else stream.losses[:, stream.is_chosen]
    loss = ex_post.BatchLoss(
        batch_id='',
        minus_log_alpha=tuple(losses[0].tolist()),
        log_beta=tuple(losses[1].tolist()),
        places=(0,) * count,
        is_private=tuple(flags.tolist()),
    )
    if params.is_ex_post:
        return loss.epsilon(params)
    per_token = pure_cost(params)
    runs = loss.sparse_vector_runs() * accounting.sparse_vector_pure_cost(params)
    return int(flags.sum()) * per_token + runs


def pure_cost(params: MechanismParams) -> float:
    """2Δ/τ: the largest log ratio of a sample from softmax(z/τ) if no component of z moves by more than Δ."""
    return 2 * params.aggregate_sensitivity / params.temperature


def vote_cost(params: MechanismParams) -> float:
    """4c/(sτ): the same if only the votes of one context move z, with individual accounting."""
    return 4 * params.clip_bound / (params.batch_size * params.temperature)
