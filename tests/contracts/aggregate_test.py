"""Every registered aggregate keeps the contract, so does one that a test registers; broken ones are found."""

import contextlib
import re
import typing
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.privacy import accounting, mechanism, report, sampling
from models.privacy.accounting import events
from models.privacy.aggregates import AGGREGATES, Aggregate, aggregate, clipping, register, replay
from models.privacy.facts import Facts, Reproduction, RhoStage, Sensitivity
from models.privacy.params import MechanismParams
from models.privacy.report import GroupPlan
from models.privacy.sampling import MAX_CLIP_OVER_TEMPERATURE
from tests import oracles, samples
from tests.contracts import aggregate_contract
from tests.models.privacy.report.samples import TOTALS
from tests.models.privacy.sampling_test import halves, words_of


@typing.final
class Halved(Aggregate):
    """Half the mean of clipped logits: as little a mechanism of its own as one can be."""

    name: ClassVar[str] = 'halved'
    summary: ClassVar[str] = 'half the average of the private logits, clipped'
    default_clip_bound: ClassVar[float] = 4.0
    default_temperature: ClassVar[float] = 2.0
    default_public_top_k: ClassVar[int | None] = None
    reads_public_logits: ClassVar[bool] = False
    takes_reference: ClassVar[bool] = False
    has_price_in_advance: ClassVar[bool] = True
    largest_clip_over_temperature: ClassVar[float] = MAX_CLIP_OVER_TEMPERATURE

    def tally(self, logits: Any, is_private: Any, candidates: Any, params: MechanismParams) -> jax.Array:
        return aggregate.sum_over_contexts(
            lambda rows: clipping.clip_logits(rows, params.clip_bound, candidates.counted), logits, is_private
        )

    def combine(self, tallied: Any, candidates: Any, params: MechanismParams) -> jax.Array:
        return tallied / (2 * params.batch_size)

    def allowed(self, mask: jax.Array, public_logits: jax.Array, params: MechanismParams) -> jax.Array:
        return aggregate.top_k(mask, public_logits, params.public_top_k)

    def sensitivity(self, params: MechanismParams) -> float:
        return aggregate.bounded_sensitivity(params) / 2

    def event(self, params: MechanismParams) -> events.ZCDpEvent:
        return aggregate.exponential_mechanism_event(self.sensitivity(params), params.temperature)

    def facts(self, params: MechanismParams) -> Facts:
        rho = params.max_private_tokens * self.event(params).rho
        stage = RhoStage(name='Private tokens', rho=rho, explanation='A test.', formula='r · …', numbers='')
        moved = Sensitivity(quantity='Half a mean', value=self.sensitivity(params), formula='c/2s')
        arithmetic = Reproduction(
            settings=(f'c = {params.clip_bound!r}', f'tau = {params.temperature!r}'),
            cost='0.5 * (change * c / (2 * s * tau)) ** 2',
        )
        return Facts(
            stages=(stage,), sensitivities=(moved,), on_replacement='all doubles', reproduction=arithmetic
        )

    def token_losses(self, tallied: Any, allowed: Any, index: Any, params: MechanismParams) -> None:
        """None: a price is known in advance."""

    def replayed_scores(
        self,
        logits: Any,
        public_logits: Any,
        allowed: Any,
        batches: Any,
        params: MechanismParams,
        *,
        clips: bool = True,
        narrows: bool = False,
    ) -> Iterator[np.ndarray]:
        counted = replay.counted(allowed, params, narrows=narrows)
        votes = replay.clipped(logits, params.clip_bound, counted, clips=clips)
        yield from (votes[list(rows)].sum(axis=0) / (2 * params.batch_size) for rows in batches)

    def replayed_tokens(
        self, mask: np.ndarray, public_logits: np.ndarray, params: MechanismParams
    ) -> np.ndarray:
        return replay.top_k(mask, public_logits, params)


def _halved_twin(logits: np.ndarray, public: np.ndarray, s: float, c: float) -> np.ndarray:
    return oracles.mean_aggregate(logits, s, c) / 2


@contextlib.contextmanager
def registered(strategy: Aggregate) -> Iterator[str]:
    """The name of an aggregate that one call registered, with a twin, until the block ends."""
    register(strategy)
    oracles.TWINS[strategy.name] = oracles.Twin(_halved_twin)
    try:
        yield strategy.name
    finally:
        del AGGREGATES[strategy.name], oracles.TWINS[strategy.name]


@pytest.fixture
def halved() -> Iterator[str]:
    with registered(Halved()) as name:
        yield name


@pytest.mark.parametrize('assert_kept', aggregate_contract.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize('name', list(AGGREGATES))
def test_every_aggregate(name: str, assert_kept: Callable[[str], None]) -> None:
    assert_kept(name)


def test_every_aggregate_has_a_slow_twin() -> None:
    assert set(oracles.TWINS) == set(AGGREGATES)


@pytest.mark.parametrize('assert_kept', aggregate_contract.CHECKS, ids=lambda check: check.__name__)
def test_an_aggregate_that_one_call_registers(halved: str, assert_kept: Callable[[str], None]) -> None:
    assert_kept(halved)


def test_an_aggregate_that_one_call_registers_is_priced(halved: str) -> None:
    """A quarter of the mean's price; nobody but the table was told."""
    params = aggregate_contract.params_of(halved, threshold=0.5, threshold_noise_scale=0.3)
    mean = aggregate_contract.params_of('mean', threshold=0.5, threshold_noise_scale=0.3)
    assert accounting.aggregate_rho(params) == pytest.approx(accounting.aggregate_rho(mean) / 4)
    assert accounting.sparse_vector_rho(params) == accounting.sparse_vector_rho(mean)
    assert params.aggregate_sensitivity == mean.aggregate_sensitivity / 2


def test_an_aggregate_that_one_call_registers_is_reported(halved: str) -> None:
    params = aggregate_contract.params_of(halved)
    found = report.build_privacy_report(
        params,
        run_id='run',
        delta=1e-6,
        plan=(GroupPlan(label=None, batches=4),),
        corpus=TOTALS,
        settings={},
        versions={},
    )
    assert found.rho_total == pytest.approx(params.max_private_tokens * accounting.aggregate_rho(params))
    assert found.mechanism['aggregate'] == halved
    assert report.PrivacyReport.from_json(found.to_json()) == found


def test_an_aggregate_that_one_call_registers_chooses_tokens(halved: str) -> None:
    """Chi-square over 2e5 draws at odds 1e-6; the mean's frequencies are rejected."""
    params = aggregate_contract.params_of(halved)
    rng = np.random.default_rng(0)
    logits, public = rng.normal(0, 3, (3, 8)), rng.normal(0, 3, 8)
    rows = jnp.asarray(np.concatenate([public[None], logits]), jnp.float32)
    votes = samples.tally((rows,), (jnp.arange(4) > 0,), params)
    words = halves(words_of('halved', 200_000, sampling.tree_levels(8)))
    choose = jax.vmap(lambda w: mechanism.choose_token(votes, jnp.float32(0), jnp.float32(0), w, params)[0])
    counts = np.bincount(np.asarray(jax.jit(choose)(words)), minlength=8)
    for name in (halved, 'mean'):
        scores = oracles.TWINS[name].scores(logits, public, params.batch_size, params.clip_bound)
        statistic, degrees = oracles.chi_square(counts, oracles.softmax(scores, params.temperature))
        assert (statistic <= oracles.chi_square_bound(degrees, 1e-6)) == (name == halved)


class _TooCheap(Halved):  # type: ignore[misc] # final, but for this
    """Halves its price once more."""

    name = 'too cheap'

    def sensitivity(self, params: MechanismParams) -> float:
        return super().sensitivity(params) / 2


class _TrueSize(Halved):  # type: ignore[misc]
    """Divides by the number of contexts that the batch holds."""

    name = 'true size'

    def tally(self, logits: Any, is_private: Any, candidates: Any, params: MechanismParams) -> jax.Array:
        count = jnp.maximum(1, sum(mask.sum() for mask in is_private))
        return super().tally(logits, is_private, candidates, params) * params.batch_size / count


class _Unclipped(Halved):  # type: ignore[misc]
    """Lets every vote through."""

    name = 'unclipped'

    def tally(self, logits: Any, is_private: Any, candidates: Any, params: MechanismParams) -> jax.Array:
        return aggregate.sum_over_contexts(lambda rows: rows, logits, is_private)


class _OtherMask(Halved):  # type: ignore[misc]
    """Leaves tokens out that the mask has, and may leave none."""

    name = 'other mask'

    def allowed(self, mask: jax.Array, public_logits: jax.Array, params: MechanismParams) -> jax.Array:
        return mask & (jnp.arange(len(mask)) % 2 == 0)


@pytest.mark.parametrize(
    ('wrong', 'check'),
    [
        (_TooCheap(), aggregate_contract.check_one_token_is_within_its_price),
        (_TrueSize(), aggregate_contract.check_one_token_is_within_its_price),
        (_Unclipped(), aggregate_contract.check_one_token_is_within_its_price),
        (_Unclipped(), aggregate_contract.check_scores_are_finite_whatever_a_row_holds),
        (_OtherMask(), aggregate_contract.check_the_mask_is_public),
        (_OtherMask(), aggregate_contract.check_a_replay_allows_what_decoding_does),
        (_TrueSize(), aggregate_contract.check_a_replay_scores_what_decoding_does),
    ],
    ids=lambda part: getattr(part, '__name__', type(part).__name__),
)
def test_an_aggregate_that_breaks_the_contract_is_found(
    wrong: Aggregate, check: Callable[[str], None]
) -> None:
    with registered(wrong) as name, pytest.raises(AssertionError):
        check(name)


def test_a_name_is_taken_once() -> None:
    with pytest.raises(ValueError, match="name='mean'"):
        register(AGGREGATES['mean'])


def test_nobody_asks_for_an_aggregate_by_its_name() -> None:
    """What depends on an aggregate is asked of it: a comparison with a name is nowhere but in the table."""
    names = '|'.join(AGGREGATES)
    asked = re.compile(rf"""aggregate(['"][)\]])? (==|!=|in|not in) |(==|!=|case) ['"]({names})['"]""")
    for room in ('models', 'transforms', 'pipeline', 'launch'):
        for path in (samples.ROOT / room).rglob('*.py'):
            lines = path.read_text(encoding='utf-8').splitlines()
            found = [line.strip() for line in lines if asked.search(line) and not line.startswith('for ')]
            table = ['self.aggregate in AGGREGATES,'] if path.name == 'params.py' else []
            assert found == table, path


@pytest.mark.run
def test_the_table_is_there_without_jax() -> None:
    """`--help` lists the aggregates, and answers at once."""
    samples.assert_import_leaves('models.privacy.params', 'jax', 'numpy', 'scipy', 'dp_accounting')
