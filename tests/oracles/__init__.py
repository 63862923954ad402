"""The slow twin of every formula of the mechanism, written from the papers, not from our code.

Plain NumPy in float64 and mpmath; of the project only the plain data types are imported.
A module for each subject; tests say `oracles.clip`, so that a reader sees which side is the twin.
"""

from tests.oracles.accounting import delta, epsilon, renyi, rho_per_private_token
from tests.oracles.aggregates import (
    TWINS,
    Twin,
    allowed_tokens,
    candidates,
    clip,
    difference_aggregate,
    log_softmax,
    mean_aggregate,
    median,
    median_aggregate,
    medians_after_one_change,
    softmax,
    top_k_plus,
)
from tests.oracles.batching import batches, histogram, record_hash
from tests.oracles.clustering import (
    bert_mean_state,
    nearest,
    similarity,
    tfidf_embedding,
)
from tests.oracles.constraints import Allowed, long_enough, vocabulary
from tests.oracles.ex_post import token_losses
from tests.oracles.goodness_of_fit import chi_square, chi_square_bound
from tests.oracles.grammars import (
    as_re,
    grammar,
    in_form,
    shortest,
    state_masks,
    texts,
    told_apart,
    written,
)
from tests.oracles.individual import (
    DIGITS,
    Individual,
    example_of,
    individual_log_distribution,
    individual_price,
    individual_steps,
    individual_votes,
    link,
    reference_mean,
)
from tests.oracles.mechanism import (
    Mechanism,
    Output,
    Steps,
    log_distribution,
    log_run_probability,
    outputs_of,
    positions_of,
    prefixes,
    split,
    steps_of,
    stream,
)
from tests.oracles.nucleus import drawn, nucleus, sampled_row
from tests.oracles.reference import first_round, pick_texts, released_texts
from tests.oracles.sampling import sampling_tree
from tests.oracles.sparse_vector import distance
from tests.oracles.stopping import Stop, StopTexts, may_come, released_text, stopped
