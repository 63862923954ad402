"""The guarantee by enumeration where a mask narrows predictions: a structure's, or that of a least length.

As `enumeration_test.py` and `individual_enumeration_test.py`, with a public mask at every prefix: every
prediction is taken given that one of its tokens comes, and a token that it leaves alone is emitted
without a vote.
"""

import dataclasses
import math

import jax.numpy as jnp
import numpy as np
import pytest

from models.constraints import LongEnough, Vocabulary
from models.privacy import accounting, candidates
from models.privacy.candidates import Narrowed
from models.privacy.params import MechanismParams
from models.stop_rule import StopRule
from tests import oracles, samples
from tests.models.privacy import enumeration_test, individual_enumeration_test
from tests.models.privacy.enumeration_test import (
    SLACK,
    Family,
    distributions,
    oracle_steps,
    our_steps,
    pure_cost,
    worst_excess,
)

pytestmark = pytest.mark.heavy

VOCAB, LENGTH = 4, 3
# At most so many tokens, of which so many private: forced ones come between them.
TOKENS, PRIVATE = 4, 2


def masks_of(index: dict[tuple[int, ...], int], vocab: int = VOCAB) -> np.ndarray:
    """`[N, V]` bool by hand: a choice of three, then one forced token or two that may come, then all."""
    masks = np.zeros((len(index), vocab), bool)
    for prefix, place in index.items():
        match prefix:
            case ():
                masks[place, :3] = True
            case (0,):
                masks[place, 3] = True
            case (_,):
                masks[place, [0, 3]] = True
            case (0, _):
                masks[place, [1, 2]] = True
            case _:
                masks[place] = True
    return masks


SETTINGS = {
    'mean': {'aggregate': 'mean', 'clip_bound': 2.0, 'temperature': 1.5},
    'difference': {'aggregate': 'difference', 'clip_bound': 1.0, 'temperature': 1.0},
    'mean, sparse vector': {
        'aggregate': 'mean', 'clip_bound': 2.0, 'temperature': 1.5,
        'threshold': 0.6, 'threshold_noise_scale': 0.3,
    },
    'difference, sparse vector, best 1': {
        'aggregate': 'difference', 'clip_bound': 1.0, 'temperature': 1.0, 'public_top_k': 1,
        'threshold': 0.6, 'threshold_noise_scale': 0.3,
    },
    'mean, best 2': {'aggregate': 'mean', 'clip_bound': 2.0, 'temperature': 1.5, 'public_top_k': 2},
}  # fmt: skip


def case(name: str) -> tuple[Family, MechanismParams, np.ndarray]:
    params = MechanismParams(
        batch_size=2, max_private_tokens=PRIVATE, max_batch_tokens=TOKENS, max_example_tokens=LENGTH,
        **SETTINGS[name],
    )  # fmt: skip
    family = enumeration_test._adversarial(VOCAB, LENGTH, params.clip_bound)
    return family, params, masks_of(family.index)


def settings_of(params: MechanismParams) -> oracles.Mechanism:
    return dataclasses.replace(oracles.Mechanism.of(params), narrows=True)


@pytest.mark.parametrize('name', samples.with_first(SETTINGS, 'mean'))
def test_forced_tokens_and_narrowed_votes_cost_no_more_than_the_private_tokens(name: str) -> None:
    family, params, masks = case(name)
    settings = settings_of(params)
    ours, twin = our_steps(family, params, masks), oracle_steps(family, settings, masks)
    for dataset in family.datasets:
        for field in ('private_log', 'public_log') if params.uses_sparse_vector else ('private_log',):
            np.testing.assert_allclose(
                getattr(ours[dataset], field), getattr(twin[dataset], field), rtol=1e-5, atol=1e-5
            )
        if params.uses_sparse_vector:
            np.testing.assert_allclose(ours[dataset].distance, twin[dataset].distance, atol=1e-5)
    logs, exact = (distributions(family, steps, settings, masks) for steps in (ours, twin))
    for dataset in family.datasets:
        assert np.exp(exact[dataset]).sum() == pytest.approx(1, abs=1e-9)
    rho, pairs = accounting.generation_rho(params), family.added()
    assert worst_excess(pairs, exact, rho, pure_cost(params)) <= 1 + 1e-9
    assert worst_excess(pairs, logs, rho, pure_cost(params)) <= 1 + SLACK
    # Forced tokens stand between private ones, and more are emitted than are paid for.
    outputs = oracles.outputs_of(VOCAB, settings, masks, family.index)
    flags = [[flag for _, flag in output] for output in outputs]
    assert any(found.count(True) == PRIVATE and None in found for found in flags)


@pytest.mark.parametrize('name', SETTINGS)
def test_a_forced_token_that_is_charged_is_within_the_price_and_not_free(name: str) -> None:
    """Sound, and found: it uses up private tokens that the structure needs none of."""
    family, params, masks = case(name)
    right = settings_of(params)
    charged = dataclasses.replace(right, charges_forced=True)
    logs = distributions(family, oracle_steps(family, charged, masks), charged, masks)
    rho = accounting.generation_rho(params)
    assert worst_excess(family.added(), logs, rho, pure_cost(params)) <= 1 + 1e-9

    def choices(settings: oracles.Mechanism) -> int:
        """Most tokens at which there was a choice, of outputs that began with token 0."""
        outputs = oracles.outputs_of(VOCAB, settings, masks, family.index)
        places = [oracles.positions_of(output, settings, family.index) for output in outputs]
        return min(
            sum(int(masks[place].sum() > 1) for place in of)
            for output, of in zip(outputs, places, strict=True)
            if output[0] == (0, True) and [flag for _, flag in output].count(True) == PRIVATE
        )

    assert choices(right) == PRIVATE and choices(charged) < PRIVATE


# Token 0, which a context expects above all, and two of token 1 end an example, but not at its beginning.
STOP = oracles.StopTexts(frozenset({0}), ('bb',), lambda ids: ''.join('abcd'[token] for token in ids))
LEAST = 1


def long_enough(name: str) -> tuple[Family, MechanismParams, np.ndarray, oracles.Mechanism]:
    """A case with the masks that the compiled constraint has after every prefix, and the twin's settings."""
    family, params, _ = case(name)
    # Beside the end that it expects, a context's opinion of the other tokens would be clipped away.
    logits = family.logits.copy()
    logits[0] = np.array([3.0, 1.0, 0.0, -0.5], np.float32) * params.clip_bound
    family = dataclasses.replace(family, logits=logits)
    # Tokens after an end are seen.
    params = dataclasses.replace(params, max_private_tokens=PRIVATE + (not params.uses_sparse_vector))
    rule = StopRule.of(VOCAB, tokens=STOP.tokens, texts=STOP.texts, token_bytes=[b'', b'b', b'c', b'd'])
    constraint = LongEnough.held(Vocabulary.of(np.ones(VOCAB, bool)), rule, LEAST)
    settings = dataclasses.replace(
        oracles.Mechanism.of(params, STOP), narrows=constraint.narrows_predictions, min_example_tokens=LEAST
    )
    masks = np.zeros((len(family.index), VOCAB), bool)
    for prefix, place in family.index.items():
        if any(oracles.stopped(prefix[:length], STOP) for length in range(1, len(prefix) + 1)):
            masks[place] = True  # nothing is sampled here
            continue
        state = constraint.start()
        for token in prefix:
            state = constraint.advance(state, jnp.int32(token))
        masks[place] = np.asarray(constraint.allowed(state))
        assert masks[place].tolist() == settings.long_enough(np.ones(VOCAB, bool))(prefix).tolist()
    assert masks[family.index[()]].tolist() == [False, True, True, True]
    return family, params, masks, settings


@pytest.mark.parametrize('name', SETTINGS)
def test_an_example_that_may_not_end_yet_costs_no_more_than_the_private_tokens(name: str) -> None:
    family, params, masks, settings = long_enough(name)
    ours, twin = our_steps(family, params, masks), oracle_steps(family, settings, masks)
    logs, exact = (distributions(family, steps, settings, masks) for steps in (ours, twin))
    for dataset in family.datasets:
        np.testing.assert_allclose(logs[dataset], exact[dataset], rtol=1e-4, atol=1e-4)
        assert np.exp(exact[dataset]).sum() == pytest.approx(1, abs=1e-9)
    rho = accounting.generation_rho(params)
    assert worst_excess(family.added(), logs, rho, pure_cost(params)) <= 1 + SLACK


@pytest.mark.parametrize('name', ['mean', 'mean, sparse vector'])
def test_an_end_that_is_struck_out_after_the_votes_is_another_distribution(name: str) -> None:
    """Votes that were centred on the end, or a test that counted it, show."""
    family, params, masks, right = long_enough(name)
    late = dataclasses.replace(right, masks_late=True)
    ours = distributions(family, our_steps(family, params, masks), right, masks)
    logs = distributions(family, oracle_steps(family, late, masks), late, masks)
    assert max(_total_variation(ours[d], logs[d]) for d in family.datasets) > 0.01


@pytest.mark.first
def test_a_mask_applied_after_the_votes_is_another_distribution() -> None:
    """Within the price, but what votes say of forbidden tokens shows in the test and in the clip."""
    for name in ('mean', 'mean, sparse vector'):
        family, params, masks = case(name)
        right = settings_of(params)
        late = dataclasses.replace(right, masks_late=True)
        ours = distributions(family, our_steps(family, params, masks), right, masks)
        logs = distributions(family, oracle_steps(family, late, masks), late, masks)
        assert max(_total_variation(ours[d], logs[d]) for d in family.datasets) > 0.05


def test_a_distance_that_is_not_renormalised_is_another_distribution() -> None:
    family, params, masks = case('mean, sparse vector')
    right = settings_of(params)
    ours = distributions(family, our_steps(family, params, masks), right, masks)
    bare = dataclasses.replace(right, renormalises='nothing')
    logs = distributions(family, oracle_steps(family, bare, masks), bare, masks)
    assert max(_total_variation(ours[d], logs[d]) for d in family.datasets) > 0.01


def _total_variation(first: np.ndarray, second: np.ndarray) -> float:
    return float(np.abs(np.exp(first) - np.exp(second)).sum() / 2)


def hidden(length: int) -> tuple[Family, MechanismParams, np.ndarray]:
    """Contexts that expect a forbidden token, and one that comes and believes in an allowed one.

    Of three tokens the last is forbidden. All expect it but the second context, and of the allowed ones
    the first context and the public prompt expect token 0, the second token 1.
    """
    index = oracles.prefixes(3, length)
    agree, differ = np.array([0.0, -40.0, 40.0]), np.array([-40.0, 0.0, -40.0])
    rows = np.broadcast_to(agree, (len(index), 3))
    family = Family(
        np.stack([rows, np.broadcast_to(differ, rows.shape)]).astype(np.float32),
        rows.astype(np.float32),
        index,
        ((), (0,), (1,), (0, 1)),
    )
    params = MechanismParams(
        batch_size=8, clip_bound=1e-3, temperature=1.0, max_private_tokens=1, threshold=2.5,
        threshold_noise_scale=0.1, max_example_tokens=length, max_batch_tokens=length,
    )  # fmt: skip
    masks = np.zeros((len(index), 3), bool)
    masks[:, :2] = True
    return family, params, masks


def test_a_sum_that_is_renormalised_breaks_the_pure_price() -> None:
    """Its divisor is the mass that contexts leave to the mask: one context may be all of it."""
    family, params, masks = hidden(3)
    right = settings_of(params)
    rho, pure = accounting.generation_rho(params), pure_cost(params)
    ours = distributions(family, our_steps(family, params, masks), right, masks)
    assert worst_excess(family.added(), ours, rho, pure) <= 1 + SLACK
    spoilt = dataclasses.replace(right, renormalises='average')
    logs = distributions(family, oracle_steps(family, spoilt, masks), spoilt, masks)
    assert worst_excess(family.added(), logs, rho, pure) > 1.2


# ------------------------------------------------------------------ individual accounting


INDIVIDUAL = ('mild', 'examples end and start again', 'the best 2')


def _some_masks(family: individual_enumeration_test.Family) -> np.ndarray:
    """By place and token: two or three of the tokens, and one alone after token 0."""
    masks = np.ones((len(family.index), family.vocab), bool)
    for prefix, place in family.index.items():
        masks[place, len(prefix) % family.vocab] = False
        if prefix[-1:] == (0,):
            masks[place] = np.arange(family.vocab) == family.vocab - 1
    return masks


def _long_enough_masks(family: individual_enumeration_test.Family, stop: frozenset[int]) -> np.ndarray:
    """No first token of an example ends it."""
    held = oracles.long_enough(oracles.vocabulary(np.ones(family.vocab, bool)), stop, 1)
    return np.stack([held(prefix) for prefix in family.index])


@pytest.mark.parametrize(
    'name, is_long_enough', [*((name, False) for name in INDIVIDUAL), (INDIVIDUAL[1], True)]
)
def test_a_masked_stream_costs_at_most_the_budget_of_one_context(name: str, is_long_enough: bool) -> None:
    family, params, stop = individual_enumeration_test.case(name, 1.3)
    masks = _long_enough_masks(family, stop) if is_long_enough else _some_masks(family)
    assert not is_long_enough or (not masks.all() and stop)
    settings = oracles.Individual.of(params, stop)
    steps = oracles.individual_steps(family.logits, oracles.reference_mean(family.reference), settings, masks)
    exact = {
        d: oracles.individual_log_distribution(steps, d, settings, family.index) for d in family.datasets()
    }
    found, _ = individual_enumeration_test.ours(family, params, stop, masks)
    for dataset in family.datasets():
        np.testing.assert_allclose(found[dataset], exact[dataset], rtol=0, atol=2e-4)
        assert np.exp(found[dataset]).sum() == pytest.approx(1, abs=1e-9)
    excess = individual_enumeration_test.worst_excess
    assert excess(family.added(), exact, params.context_budget, params.omega) <= 1 + 1e-9
    assert excess(family.added(), found, params.context_budget, params.omega) <= 1 + SLACK
    # Nobody pays where nobody has a choice.
    assert (steps.prices[:, masks.sum(axis=1) == 1] == 0).all()


def test_a_price_of_unmasked_votes_breaks_the_budget() -> None:
    """Among all tokens the allowed ones are rare, and cheap; of what is sampled they are everything."""
    right = dataclasses.replace(individual_enumeration_test.RARE, s=4, tau=1.0, omega=2.0)
    share = 1e-3
    public = np.log([[share / 2, share / 2, 1 - share]])
    push = public + [1.0, -1.0, 0.0]
    family = individual_enumeration_test.Family(
        np.stack([push] * 3).astype(np.float32), public[None].astype(np.float32), {(): 0}, 3
    )
    masks = np.array([[True, True, False]])
    excess = {}
    for late in (False, True):
        settings = dataclasses.replace(right, masks_late=late)
        steps = oracles.individual_steps(family.logits, public, settings, masks)
        settings = dataclasses.replace(settings, budget=float(steps.prices[0, 0]) * (1 + 1e-9))
        logs = {
            d: oracles.individual_log_distribution(steps, d, settings, family.index)
            for d in family.datasets()
        }
        excess[late] = individual_enumeration_test.worst_excess(
            family.added(), logs, settings.budget, settings.omega
        )
    assert excess[False] <= 1 + 1e-9 and excess[True] > 5


def test_where_the_best_hold_no_allowed_token_the_best_allowed_ones_are_taken() -> None:
    """The K best of all, and what the mask leaves of them; the mask's own K best where that is nothing."""
    vocab, k = 90, 2
    params = MechanismParams(
        aggregate='difference', accounting='individual', batch_size=20, clip_bound=1.0, shift_bound=0.5,
        temperature=1.0, context_budget=1.0, omega=4.0, public_top_k=k, max_example_tokens=3,
        max_batch_tokens=3,
    )  # fmt: skip
    public = -np.arange(vocab, dtype=np.float32) / 10
    for allowed, expected in (
        ([0, 1, 50], [0, 1]),
        ([1, 50], [1]),
        ([7, 9, 50], [7, 9]),  # among the candidates, and not among the K best
        ([88, 89], [88, 89]),
        ([70, 75, 80, 89], [70, 75]),
    ):
        mask = jnp.zeros(vocab, bool).at[jnp.array(allowed)].set(True)
        narrowed = Narrowed(lambda mask=mask: mask, lambda tokens, mask=mask: mask[tokens])
        found = candidates.choose(narrowed, jnp.asarray(public), params, params.strategy.allowed)
        assert np.asarray(found.tokens[found.allowed]).tolist() == expected
        assert math.isclose(float(found.public_logits[found.allowed][0]), public[expected[0]])
