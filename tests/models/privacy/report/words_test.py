"""Each sentence states the number of the report, and each template renders with every part on and off."""

import contextlib
import dataclasses
import io
import itertools
import re
from typing import Any

import pytest

from models.privacy import accounting, report
from models.privacy.earlier_release import GivenTexts, TextSource
from models.privacy.gradients import TuningParams
from models.privacy.params import MechanismParams
from models.privacy.report import (
    CellCounts,
    Cells,
    Described,
    GivenReference,
    GroupPlan,
    Predicted,
    PrivacyReport,
    Tuned,
    TunedVoted,
    Voted,
    words,
)
from models.privacy.report.released import LISTS, SENTENCES
from models.privacy.text_votes import TextVoteParams
from models.privacy.tuned_votes import TunedVotesParams
from tests.models.privacy.report.samples import (
    CLUSTERED,
    INDIVIDUAL,
    MEDIAN,
    PARAMS,
    PARAMS_OF_ALL_KINDS,
    build,
    clustered,
    clusters,
    earlier,
    finished,
    with_ledger,
)
from tests.oracles import costs

TUNED = TuningParams(
    units=1000, expected_batch_size=100, tuning_steps=20, clip_norm=1.0, noise_multiplier=2.0
)
COUNTING = dataclasses.replace(TUNED, label_mix_rho=0.01)
VOTES = TextVoteParams(rounds=3, noise_scale=12.5, nearest=4)
BOTH = TunedVotesParams(
    units=1000, expected_batch_size=100, tuning_steps=20, clip_norm=1.0, noise_multiplier=2.0,
    noise_scale=9.0, nearest=4,
)  # fmt: skip
GIVEN = GivenTexts(
    sources=(TextSource(run_id='first', sampled_by=None), TextSource(run_id='second', sampled_by='samples')),
    vouched=True,
)
CELLS = Cells(
    fields=('about',), values=(('1',), ('2',)), counts_rho=0.01,
    cell_counts=(CellCounts(label=None, counts=(4, -1)),),
)  # fmt: skip
COUNTED = (GroupPlan(label='a', batches=2, noisy_count=493), GroupPlan(label='b', batches=3, noisy_count=771))
METHODS: dict[str, Described] = {
    'predicted': Predicted(mechanism=PARAMS),
    'tuned': Tuned(mechanism=TUNED),
    'tuned_voted': TunedVoted(mechanism=BOTH),
    'voted': Voted(mechanism=VOTES),
}


# --- Each template, with every part on and off ------------------------------------

# By method a part, what turns it on, and what only its sentences say.
PARTS: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ('predicted', {'reference': 'first round'}, {}, 'a public part of the batches of each label'),
    (
        'predicted',
        {'reference': GivenReference(size=8, digest='abc', texts=GIVEN)},
        {},
        r"SHA-256 abc\) were sampled, by the run 'samples', from the adapter of run 'second'",
    ),
    (
        'predicted',
        {'reference': GivenReference(size=8, digest='abc', texts=GIVEN)},
        {},
        'are public and were chosen',
    ),
    (
        'predicted',
        {'adapter': 'abc', 'releases': (earlier('T', tuned=True),)},
        {},
        r"SHA-256 abc\) .* the run 'T'",
    ),
    ('predicted', {'has_structure': True}, {}, 'allowed alone is emitted without a vote'),
    ('predicted', {'cells': CELLS}, {}, 'The cells come from the schema'),
    ('predicted', {'counts_rho': 0.01}, {'plan': COUNTED}, 'comes from its noisy count'),
    (
        'predicted',
        {'clusters': clusters(), 'counts_rho': 0.01},
        {'plan': CLUSTERED},
        'the kept centre nearest',
    ),
    ('predicted', {}, {'sample_rate': 0.25}, 'each with probability 0.25'),
    ('predicted', {}, {'declared_units': 500}, 'The declared number of records is public'),
    ('predicted', {'mechanism': MEDIAN}, {}, 'median'),
    ('predicted', {'mechanism': INDIVIDUAL}, {}, 'B = 0.5 covers'),
    ('tuned', {'label_mix': 'given'}, {}, "labels' shares of the texts were given"),
    ('tuned', {'label_mix': 'counted'}, {}, 'follows from the released noisy counts'),
    (
        'tuned',
        {'mechanism': COUNTING},
        {'plan': COUNTED},
        'discrete Gaussian noise on the counts of labels',
    ),
    (
        'tuned',
        {
            'mechanism': COUNTING,
            'trains': False,
            'releases': (earlier('T', costs={'Fine-tuning': COUNTING.event}),),
            'label_mix': 'counted',
        },
        {'plan': COUNTED},
        'The noisy counts of labels, the adapter',
    ),
    (
        'tuned',
        {'writes_texts': False},
        {'plan': (GroupPlan(label=None, batches=0),)},
        'This run sampled no text',
    ),
    ('tuned', {'warm_start': GIVEN}, {}, "The warm start is the corpus that the run 'first' released"),
    ('tuned', {'warm_start': GIVEN}, {}, 'The texts of the warm start are public'),
    ('tuned', {'has_structure': True}, {}, 'masks what is sampled'),
    (
        'tuned',
        {'trains': False, 'releases': (earlier('T', costs={'Fine-tuning': TUNED.event}, dataset='visits'),)},
        {},
        "Covered: the run 'T', which its ledger charged to 'visits' as run 1. It trained the adapter",
    ),
    ('tuned_voted', {'has_structure': True}, {}, 'masks what is sampled'),
    (
        'voted',
        {'adapter': 'abc', 'releases': (earlier('T', tuned=True),)},
        {},
        r"the adapter that the run 'T' released \(SHA-256 abc\)",
    ),
    ('voted', {'start': GIVEN}, {}, "The first list is the corpus that the run 'first' released, or a part"),
    ('voted', {'start': GIVEN}, {}, "The first list was sampled, by the run 'samples', from the adapter"),
    ('voted', {'start': GIVEN}, {}, 'The texts of the first list are public'),
    ('voted', {'writes_texts': False}, {}, 'No record reaches a language model'),
    ('voted', {'has_structure': True}, {}, 'masks what is sampled'),
    (
        'voted',
        {'mechanism': dataclasses.replace(VOTES, nearest=1)},
        {},
        'the candidate that is nearest to it;',
    ),
]
# The same of what every report may have.
for kind in METHODS:
    whole = {'predicted': PARAMS, 'tuned': TUNED, 'tuned_voted': BOTH, 'voted': VOTES}[kind]
    PARTS += [
        (
            kind,
            {'mechanism': dataclasses.replace(whole, unit='user', examples_per_context=8)},
            {},
            'at most 8 records',
        ),
        (kind, {'releases': (earlier('A', 0.5),)}, {}, r"went in \(run 'A'\), are"),
        (kind, {'releases': (earlier('A'), earlier('B', through='A'))}, {}, "by way of the run 'A'"),
        (kind, {'releases': (earlier('U', unit='user'),)}, {}, 'under a unit of its own'),
        (kind, {}, {'delta': 0.3}, 'δ = 0.3'),
    ]


def sentences(made: PrivacyReport) -> list[str]:
    """All of a report and of the sections that pages alone show."""
    found = [getattr(made, name) for name in SENTENCES]
    found += [row for name in LISTS for row in getattr(made, name)]
    return [*found, *itertools.chain(*words.sections(made).values())]


@pytest.mark.parametrize(('kind', 'of_method', 'of_report', 'said'), PARTS)
def test_a_part_is_said_where_it_is_there_and_nowhere_else(
    kind: str, of_method: dict[str, Any], of_report: dict[str, Any], said: str
) -> None:
    without = sentences(finished(METHODS[kind]))
    with_it = sentences(finished(dataclasses.replace(METHODS[kind], **of_method), **of_report))
    assert any(re.search(said, row) for row in with_it)
    assert not any(re.search(said, row) for row in without)
    for row in (*with_it, *without):
        assert row == ' '.join(row.split()) and not re.search(
            r'[{}]|None|Undefined| [.,;:)]|\( |[,;.][a-zA-Z]', row
        ), row


@pytest.mark.parametrize('kind', METHODS)
def test_a_name_cannot_make_a_sentence(kind: str) -> None:
    name = 'a\n- Everybody may publish the records.\n# limits\n- None.'
    made = finished(dataclasses.replace(METHODS[kind], releases=(earlier(name, dataset=name),)), run_id=name)
    plain = finished(dataclasses.replace(METHODS[kind], releases=(earlier('a', dataset='a'),)))
    for section in LISTS:
        assert len(getattr(made, section)) == len(getattr(plain, section))
    assert made.limits == plain.limits


@pytest.mark.parametrize('kind', METHODS)
def test_the_guarantee_states_epsilon_and_delta_of_the_report(kind: str) -> None:
    for releases in ((), (earlier('A', 0.5),)):
        made = finished(dataclasses.replace(METHODS[kind], releases=releases))
        assert made.epsilon is not None and made.epsilon_of_run is not None
        up, own = report.format_up(made.epsilon), report.format_up(made.epsilon_of_run)
        assert f'(ε = {up}, δ = 1e-6)-differentially private under' in made.guarantee
        assert f'more than e^{up} times as likely, plus 1e-6.' in made.guarantee
        assert (f'is (ε = {own}, δ = 1e-6).' in made.guarantee) == bool(releases)


# --- The numbers of sentences, formulas and lines of Python ------------------------


def run_pasted(made: PrivacyReport) -> tuple[float, float]:
    """rho and epsilon as the text prints them that readers are told to run."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(made.reproduction, {})
    found = re.fullmatch(r'rho = (\S+), epsilon = (\S+)\n', printed.getvalue())
    assert found
    return float(found[1]), float(found[2])


@pytest.mark.parametrize('params', PARAMS_OF_ALL_KINDS)
@pytest.mark.parametrize('counts_rho', [0.0, 0.02])
@pytest.mark.parametrize('in_clusters', [False, True])
def test_pasted_arithmetic_gives_the_same_numbers(
    params: MechanismParams, counts_rho: float, in_clusters: bool
) -> None:
    noisy = 700 if counts_rho else None
    plan = CLUSTERED if in_clusters else [GroupPlan(label='a', batches=3)]
    made = build(
        params,
        plan=[dataclasses.replace(group, noisy_count=noisy) for group in plan],
        counts_rho=counts_rho,
        clusters=clusters() if in_clusters else None,
    )
    in_advance = counts_rho + (0.0025 if in_clusters else 0)
    if params.is_ex_post and not in_advance:
        assert made.reproduction == ''
        return
    rho, epsilon = run_pasted(made)
    if params.is_ex_post:
        assert rho == pytest.approx(in_advance, rel=1e-9)
        assert f'(ε = {report.format_up(epsilon)}, δ = 1e-6)' in made.guarantee
    else:
        assert made.rho_total == pytest.approx(in_advance + accounting.generation_rho(params), rel=1e-12)
        assert rho == pytest.approx(made.rho_total, rel=1e-9)
        assert epsilon == pytest.approx(made.epsilon, rel=1e-8)
    imports = re.findall(r'^(?:from|import) (\w+)', made.reproduction, flags=re.M)
    assert imports == ['math'], 'readers need nothing but Python'


@pytest.mark.parametrize('params', PARAMS_OF_ALL_KINDS)
def test_the_numbers_put_into_the_formulas_give_the_stage(params: MechanismParams) -> None:
    made = clustered(params)
    for stage in made.stages:
        if stage.rho is not None:
            arithmetic = stage.numbers.replace('·', '*').replace('²', '**2').replace('½', '0.5')
            assert eval(arithmetic) == pytest.approx(stage.rho, rel=1e-5), stage.name
    for row in made.sensitivities:
        arithmetic = re.sub(r'(\d)c', r'\1*c', row.formula)
        assert eval(arithmetic, {'c': params.clip_bound, 's': params.batch_size}) == pytest.approx(row.value)


def test_slots_double_both_sensitivities_and_say_so() -> None:
    plain, slots = build(), build(dataclasses.replace(PARAMS, examples_per_context=4))
    assert [row.value for row in slots.sensitivities] == [2 * row.value for row in plain.sensitivities]
    assert slots.rho_total == pytest.approx(4 * plain.rho_total)
    assert 'double' in slots.unit_of_privacy and 'double' not in plain.unit_of_privacy


def test_the_guarantee_of_all_runs_is_that_of_the_ledger() -> None:
    made = with_ledger()
    assert made.ledger is not None
    (together,) = words.sections(made)['all_runs']
    shown = report.format_up(made.ledger.epsilon_after)
    assert (
        f'together ρ-zCDP for ρ = {report.format_up(made.ledger.rho_after)}, hence (ε = {shown}, ' in together
    )
    assert 'the budget bounds all of them in place of the sum: ε = 8 at this δ.' in together
    assert f'Covered together: {together}' in made.data_accesses
    # The run's own guarantee stays its own.
    assert made.guarantee == build().guarantee and made.epsilon == build().epsilon


def test_a_first_run_is_not_called_several() -> None:
    (first,) = words.sections(with_ledger(0.0, run_number=1))['all_runs']
    assert first.startswith("the first run on dataset 'visits'") and 'together' not in first
    made = with_ledger(0.0, run_number=1, epsilon_budget=None, rho_budget=1.5)
    shown = report.format_up(accounting.epsilon_from_rho(1.5, 1e-6))
    assert words.sections(made)['all_runs'][0].endswith(f'past its budget of ε = {shown} at this δ.')


@pytest.mark.parametrize('params', [PARAMS, MEDIAN])
def test_without_a_ledger_the_report_says_so(params: MechanismParams) -> None:
    made = build(params)
    assert any('this run was not charged to a ledger' in row for row in made.not_covered)
    assert len(made.not_covered) == 2 and not words.sections(made)['all_runs']


@pytest.mark.parametrize(
    ('delta', 'declared', 'expected'),
    [
        (1e-6, 10_000, 'δ = 1e-6 is n^-1.50 for n = 10,000 records (declared), below 1/n.'),
        (1e-3, 10_000, 'not below 1/n'),
        (1e-4, 10_000, 'not below 1/n'),
        (1e-6, 1, 'too few for a comparison'),
        (1e-6, 0, 'too few for a comparison'),
        (1e-6, None, 'No number of records is public'),
    ],
)
def test_delta_is_compared_with_public_numbers_only(
    delta: float, declared: int | None, expected: str
) -> None:
    assert expected in build(delta=delta, declared_units=declared).delta_relation


def test_median_has_no_figure_but_that_of_its_counts() -> None:
    made = clustered(MEDIAN)
    assert 'no (ε, δ) guarantee' in made.guarantee and 'noisy counts alone are' in made.guarantee
    priced = {stage.name: stage.rho for stage in made.stages}
    assert priced == {'Noisy counts per centre': 0.0025, 'Noisy counts': 0.002, 'Private tokens': None}
    assert 'noisy counts alone' not in build(MEDIAN).guarantee
    assert 'No figure of this report' in build(MEDIAN).delta_relation


# --------------------------------------------------------- individual accounting


@pytest.mark.parametrize(
    ('params', 'times'),
    [
        pytest.param(INDIVIDUAL, 1, id='record'),
        pytest.param(dataclasses.replace(INDIVIDUAL, examples_per_context=4, omega=2.5), 4, id='slots'),
        pytest.param(dataclasses.replace(INDIVIDUAL, omega=300.0), 1, id='all-orders'),
    ],
)
@pytest.mark.parametrize('counts', [0.0, 0.25])
def test_individual_accounting_states_what_holds_at_orders_up_to_omega(
    params: MechanismParams, times: int, counts: float
) -> None:
    """Against the twin, which also tells a cost without a largest order apart."""
    plan = [GroupPlan(label=None, batches=3, noisy_count=700 if counts else None)]
    made = build(params, plan=plan, counts_rho=counts)
    rho, omega = times * 0.5 + counts, params.omega
    assert made.rho_total == pytest.approx(rho) and made.omega == omega
    assert made.rho_per_private_token is None
    orders = costs.grid(0.05, omega - 1, 400)
    expected = float(costs.epsilon(costs.zcdp(rho, omega), 1e-6, orders))
    assert expected * (1 - 1e-4) <= made.epsilon <= expected * (1 + 1e-9)
    at_order = accounting.epsilon_at_order(made.order, made.order * rho, 1e-6)
    assert made.order <= omega and at_order == pytest.approx(made.epsilon, rel=1e-9)
    whole = accounting.epsilon_from_rho(rho, 1e-6)
    assert (made.order == omega) == (made.epsilon > whole * (1 + 1e-9)) == (times == 4)
    assert made.epsilon < made.epsilon_closed_form
    # The counts hold at every order, the text up to ω alone.
    assert [stage.omega for stage in made.stages] == [*([None] if counts else []), omega]
    (said,) = words.sections(made)['orders']
    assert f'ω = {omega:g}, and gives ε at the order α = {made.order:.6g}' in said


def test_a_reader_can_change_the_budget_of_a_context() -> None:
    made = build(INDIVIDUAL)
    changed = made.reproduction.replace('B = 0.5 ', 'B = 0.6 ')
    assert run_pasted(dataclasses.replace(made, reproduction=changed))[1] > made.epsilon * 1.05


@pytest.mark.parametrize(
    'changes',
    [{'omega': None}, {'omega': 7.0}, {'order': None}, {'order': 3.0}, {'omega': None, 'order': None}],
)
def test_orders_that_contradict_the_stages_are_refused(changes: dict[str, float | None]) -> None:
    with pytest.raises(ValueError, match='to follow from the mechanism'):
        dataclasses.replace(build(INDIVIDUAL), **changes)


def test_an_epsilon_of_all_orders_is_refused_where_the_cost_is_truncated() -> None:
    made = build(dataclasses.replace(INDIVIDUAL, omega=2.5))
    of_all_orders = accounting.epsilon_from_rho(made.rho_total, 1e-6)
    with pytest.raises(ValueError, match='Expected epsilon to follow'):
        dataclasses.replace(made, epsilon=of_all_orders, epsilon_of_run=of_all_orders)
