"""The split that is suggested is the one that a look at all of them finds, at the given epsilon."""

import functools
import itertools
import json
import math
from typing import Any

import pytest

from models.privacy import counts
from models.privacy.accounting import subsampled
from pipeline import calibration, methods
from pipeline.calibration import Calibration
from pipeline.commands import plan
from pipeline.config import job_config
from pipeline.methods.fine_tune import estimate, mechanism, suggestion
from pipeline.methods.fine_tune.suggestion import Split, TuningSuggestion
from pipeline.settings.job_config import JobConfig
from tests.command_line import in_this_process
from tests.samples import on_terminal

GIVEN = {
    'method': 'fine-tune', 'epsilon': 0.5, 'records': 600, 'delta': 1e-3, 'tuning_steps': 120,
    'expected_batch_size': 12, 'clip_norm': 0.5,
}  # fmt: skip
FEWEST = 60  # of the bundled model


@functools.cache
def rates() -> Calibration:
    return calibration.known('bundled', dtype='float32')


def config(**changed: Any) -> JobConfig:
    return job_config(**(GIVEN | changed))


@functools.cache
def suggested(minutes: float | None = None, **changed: Any) -> TuningSuggestion:
    return suggestion.suggest(config(**changed), rates(), minutes)


@pytest.mark.parametrize('changed', [{}, {'label_mix_rho': 0.002, 'labels': ('a', 'b'), 'label_field': 'l'}])
def test_the_noise_of_each_row_gives_its_epsilon(changed: dict[str, Any]) -> None:
    sigma = counts.gaussian_scale(0.002) if changed else None
    found = suggested(**changed)
    assert len(found.splits) == 5
    for split in found.splits:
        q, z, steps = split.sampling_probability, split.noise_multiplier, split.tuning_steps
        assert q == split.expected_batch_size / 600
        assert 0.98 * 0.5 < subsampled.epsilon_of_steps(q, z, steps, 1e-3, sigma) <= 0.5
        assert split.noise_of_step == pytest.approx(0.5 * z / split.expected_batch_size)
        assert split.signal_to_noise == pytest.approx(math.sqrt(steps) * split.expected_batch_size / z)


def test_the_recommended_split_is_that_of_brute_force() -> None:
    """Every size that a table could have, with the noise that a run would have."""
    found = suggested()
    sizes = [size for size in (1, 3, 6, 12, 24, 48) if 120 * 12 // size >= FEWEST and size <= 600]
    assert [split.expected_batch_size for split in found.splits] == sizes
    figures = []
    for size in sizes:
        steps = 120 * 12 // size
        z = mechanism.params(config(tuning_steps=steps, expected_batch_size=size)).noise_multiplier
        figures.append(math.sqrt(steps) * size / z)
    best = max(
        (
            number
            for number in range(1, len(sizes))
            if figures[number] >= suggestion.LEAST_GAIN * figures[number - 1]
        ),
        default=0,
    )
    assert found.recommended == found.splits[best]
    assert found.flags == f'--expected-batch-size {sizes[best]} --tuning-steps {1440 // sizes[best]}'
    for split, figure in zip(found.splits, figures, strict=True):
        assert split.signal_to_noise == pytest.approx(figure, rel=0.01)


def test_it_takes_the_largest_batch_unless_noise_hardly_falls() -> None:
    """With many records noise falls to the end of the table; with few it levels off before."""
    many, few = suggested(records=100_000, epsilon=4.0), suggested(records=200, epsilon=0.3)
    assert many.recommended == many.splits[-1] and 'the fewest that runs were measured' in many.because
    assert few.recommended != few.splits[-1] and 'half of the steps' in few.because
    following = itertools.pairwise(few.splits[few.splits.index(few.recommended) :])
    assert all(after.signal_to_noise < 1.05 * before.signal_to_noise for before, after in following)


def test_no_split_takes_longer_or_fewer_steps_than_allowed() -> None:
    found = suggested(minutes=2.0)
    assert found.unit_gradients is None and found.minutes == 2.0
    for split in found.splits:
        own = config(expected_batch_size=split.expected_batch_size)
        of_step = estimate.seconds_of_step(own, rates().rates)
        assert split.tuning_steps == int(120 / of_step) >= FEWEST
        assert split.training_hours == pytest.approx(split.tuning_steps * of_step / 3600)
        assert split.training_hours <= 2 / 60
    for split in suggested().splits:
        assert split.tuning_steps * split.expected_batch_size <= 1440


@pytest.mark.parametrize(
    'given, units, gradients, expected',
    [
        (12, 600, 2880, [1, 3, 6, 12, 24, 48]),
        (12, 20, 2880, [1, 3, 6, 12]),
        (640, 600, 64_000, [2, 5, 10, 20, 40, 80, 160, 320]),
        (64, 10_000, 1920, [1, 2, 4, 8, 16, 32]),
        (4, 600, 59, []),
    ],
)
def test_sizes_are_the_given_one_doubled_and_halved(
    given: int, units: float, gradients: int, expected: list[int]
) -> None:
    assert suggestion.batch_sizes(given, units, lambda size: gradients // size, FEWEST) == expected


def test_a_suggestion_needs_what_its_figures_follow_from() -> None:
    with pytest.raises(ValueError, match='Expected a declared number of units .* Give --records'):
        config(records=None)
    with pytest.raises(ValueError, match='Expected epsilon for a suggestion, .* give --epsilon in place of'):
        suggestion.suggest(config(epsilon=None, noise_multiplier=1.0), rates(), None)
    with pytest.raises(ValueError, match='finite minutes > 0, got minutes=0'):
        suggestion.suggest(config(), rates(), 0.0)
    with pytest.raises(ValueError, match='for 60 steps at the least, .*size=24. Raise --tuning-steps'):
        suggestion.suggest(config(tuning_steps=2), rates(), None)
    with pytest.raises(ValueError, match='got minutes=1e-06. Raise --minutes'):
        suggestion.suggest(config(), rates(), 1e-6)


@pytest.mark.parametrize('name', ['predict', 'evolve', 'refine'])
def test_other_methods_have_nothing_to_suggest(name: str) -> None:
    with pytest.raises(ValueError, match=f"can be spent in several ways, got method='{name}'"):
        methods.METHODS[name].suggest(config(), rates(), None)


ARGUMENTS = (
    'plan', '--method', 'fine-tune', '--epsilon', '2', '--records', '600', '--tuning-steps', '60',
    '--expected-batch-size', '4', '--suggest',
)  # fmt: skip


def test_the_suggestion_for_people_and_for_programs() -> None:
    shown = in_this_process(*ARGUMENTS)
    assert shown.returncode == 0 and shown.stderr == ''
    found = json.loads(in_this_process(*ARGUMENTS, '--json').stdout)
    assert found['flags'] in shown.stdout and found['recommended'] in found['splits']
    assert [split['expected_batch_size'] for split in found['splits']] == [1, 2, 4]


@pytest.mark.parametrize(
    'arguments, said',
    [
        ((*ARGUMENTS, '--compare'), 'Expected suggest alone, got compare=True'),
        ((*ARGUMENTS[:-1], '--minutes', '3'), 'Give --suggest, or leave --minutes out'),
        (('plan', '--epsilon', '2', '--records', '600', '--suggest'), "got method='predict'"),
        (('plan', '--method', 'fine-tune', '--records', '600', '--suggest'), 'Expected either epsilon or'),
        (('plan', '--method', 'fine-tune', '--epsilon', '2', '--suggest'), 'declared number of'),
    ],
)
def test_what_cannot_be_suggested_is_one_line(arguments: tuple[str, ...], said: str) -> None:
    done = in_this_process(*arguments)
    assert done.returncode == 2 and said in ' '.join(done.stderr.split()) and done.stdout == ''


@pytest.mark.parametrize('columns, is_table', [(80, True), (60, False)])
def test_it_stands_in_a_table_where_there_is_room(columns: int, is_table: bool) -> None:
    split = Split(
        expected_batch_size=2048, tuning_steps=6400, sampling_probability=0.1, noise_multiplier=0.72734,
        noise_of_step=0.00036, signal_to_noise=19910.3, training_hours=52.0,
    )  # fmt: skip
    found = TuningSuggestion(
        epsilon=3.0, delta=1e-5, unit_gradients=102_400, minutes=None, fewest_steps=30, splits=(split,),
        recommended=split, because='A reason.', flags='--tuning-steps 6400', estimated='from known rates',
    )  # fmt: skip
    shown = on_terminal(functools.partial(plan.print_suggestion, found), columns)
    assert any('Steps, T' in line and 'Time' in line for line in shown.splitlines()) == is_table
    assert max(map(len, shown.splitlines())) <= columns and '2,048 *' in shown and '…' not in shown
