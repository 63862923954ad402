"""Every registered aggregate keeps the contract, so does one that a test registers; broken ones are found."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.privacy import accounting, mechanism, report, sampling
from models.privacy.aggregates import AGGREGATES, Aggregate, register
from models.privacy.params import MechanismParams
from models.privacy.report import GroupPlan
from tests import oracles, samples
from tests.contracts import aggregate_contract
from tests.dummies.halved import Halved, registered
from tests.models.privacy.report.samples import TOTALS
from tests.models.privacy.sampling_test import halves, words_of

pytestmark = pytest.mark.heavy


@pytest.fixture
def halved() -> Iterator[str]:
    with registered(Halved()) as name:
        yield name


@pytest.mark.parametrize('assert_kept', aggregate_contract.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize('name', samples.with_first(AGGREGATES, 'mean'))
def test_every_aggregate(name: str, assert_kept: Callable[[str], None]) -> None:
    assert_kept(name)


@pytest.mark.first
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
        report.Predicted(mechanism=params),
        run_id='run',
        delta=1e-6,
        plan=(GroupPlan(label=None, batches=4),),
        corpus=TOTALS,
        settings={},
        versions={},
    )
    assert found.rho_total == pytest.approx(params.max_private_tokens * accounting.aggregate_rho(params))
    assert found.method.mechanism.aggregate == halved
    assert report.PrivacyReport.from_json(found.to_json()) == found


def test_an_aggregate_that_one_call_registers_chooses_tokens(halved: str) -> None:
    """Chi-square over 2e5 draws at odds 1e-6; the mean's frequencies are rejected."""
    params = aggregate_contract.params_of(halved)
    rng = np.random.default_rng(0)
    logits, public = rng.normal(0, 3, (3, 8)), rng.normal(0, 3, 8)
    rows = jnp.asarray(np.concatenate([public[None], logits]), jnp.float32)
    votes = samples.tally((rows,), (jnp.arange(4) > 0,), params)
    words = halves(words_of('halved', 200_000, sampling.tree_levels(8)))
    choose = jax.vmap(
        lambda w: mechanism.choose_token(votes, jnp.zeros(2, int), jnp.zeros(2, int), w, params)[0]
    )
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

    def tally(self, logits: Any, is_private: Any, candidates: Any, params: MechanismParams) -> Any:
        count = jnp.maximum(1, sum(mask.sum() for mask in is_private))
        return super().tally(logits, is_private, candidates, params), count

    def combine(self, tallied: Any, candidates: Any, params: MechanismParams) -> jax.Array:
        return super().combine(tallied[0], candidates, params) * params.batch_size / tallied[1]


class _Unclipped(Halved):  # type: ignore[misc]
    """Lets every vote through."""

    name = 'unclipped'

    def tally(self, logits: Any, is_private: Any, candidates: Any, params: MechanismParams) -> Any:
        parts = [jnp.where(mask[:, None], rows, 0.0) for rows, mask in zip(logits, is_private, strict=True)]
        return sum(part.sum(axis=0) for part in parts)

    def combine(self, tallied: Any, candidates: Any, params: MechanismParams) -> jax.Array:
        return tallied / (2 * params.batch_size)


class _OtherMask(Halved):  # type: ignore[misc]
    """Leaves tokens out that the mask has, and may leave none."""

    name = 'other mask'

    def allowed(self, mask: jax.Array, public_logits: jax.Array, params: MechanismParams) -> jax.Array:
        return mask & (jnp.arange(len(mask)) % 2 == 0)


@pytest.mark.first
@pytest.mark.parametrize(
    ('wrong', 'check'),
    [
        (_TooCheap(), aggregate_contract.check_one_token_is_within_its_price),
        (_TrueSize(), aggregate_contract.check_one_token_is_within_its_price),
        (_Unclipped(), aggregate_contract.check_one_token_is_within_its_price),
        (_Unclipped(), aggregate_contract.check_scores_are_finite_whatever_a_row_holds),
        (_OtherMask(), aggregate_contract.check_the_mask_is_public),
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
    """An aggregate itself is asked for all that depends on it: only the table compares with a name."""
    names = '|'.join(AGGREGATES)
    asked = re.compile(rf"""aggregate(['"][)\]])? (==|!=|in|not in) |(==|!=|case) ['"]({names})['"]""")
    for room in ('dp_corpus', 'models', 'transforms', 'pipeline', 'launch'):
        for path in (samples.ROOT / room).rglob('*.py'):
            lines = path.read_text(encoding='utf-8').splitlines()
            found = [line.strip() for line in lines if asked.search(line) and not line.startswith('for ')]
            in_table = [line for line in found if line.startswith('self.aggregate in AGGREGATES,')]
            assert found == in_table and len(in_table) == (path.name == 'params.py'), path


@pytest.mark.run
def test_the_table_is_there_without_jax() -> None:
    """`--help` lists the aggregates, and answers at once."""
    samples.assert_import_leaves('models.privacy.params', 'jax', 'numpy', 'scipy', 'dp_accounting')
