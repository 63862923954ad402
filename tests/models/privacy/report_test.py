"""The reports: the shown sample, round trips, refusals, and the wall between the two types."""

import contextlib
import dataclasses
import doctest
import inspect
import io
import json
import math
import re
import textwrap
import typing

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from models.privacy import accounting, report
from models.privacy.ex_post import BatchLoss, run_epsilon
from models.privacy.params import MechanismParams
from models.privacy.report import (
    CenterCounts,
    Clusters,
    CorpusTotals,
    GroupContexts,
    GroupPlan,
    LedgerEntry,
    PrivacyReport,
    RestrictedReport,
)

PARAMS = MechanismParams(
    batch_size=255,
    clip_bound=10.0,
    temperature=2.0,
    max_private_tokens=300,
    threshold=0.5,
    threshold_noise_scale=0.2,
    public_top_k=1024,
    max_batch_tokens=4000,
)
MEDIAN = dataclasses.replace(
    PARAMS, aggregate='median', clip_bound=6.0, threshold=None, threshold_noise_scale=None
)
ONE_LABEL = (GroupPlan(label=None, batches=4),)
CLUSTERED = (
    GroupPlan(label='a', cluster=0, batches=2, noisy_count=493),
    GroupPlan(label='a', cluster=3, batches=1, noisy_count=201),
    GroupPlan(label='b', cluster=1, batches=3, noisy_count=771),
)
CENTER_COUNTS = (
    CenterCounts(label='a', kept=(0, 3), counts=(300, -2, 41, 180)),
    CenterCounts(label='b', kept=(1,), counts=(7, 650, 12, 0)),
)
RHO_BUDGET = accounting.rho_from_epsilon(8, 1e-6)
TOTALS = CorpusTotals(examples=96, private_tokens=1412, public_tokens=6125, truncated=7)


def ledger_entry(rho: float, before: float = 0.25, **changes: typing.Any) -> LedgerEntry:
    """What a ledger with a budget of ε = 8 returns for the second run on its dataset."""
    arguments: dict[str, typing.Any] = {
        'dataset': 'visits',
        'run_number': 2,
        'rho_before': before,
        'rho': rho,
        'rho_after': before + rho,
        'epsilon_after': accounting.epsilon_from_rho(before + rho, 1e-6),
        'delta': 1e-6,
        'rho_budget': RHO_BUDGET,
        'epsilon_budget': 8.0,
    }
    return LedgerEntry(**(arguments | changes))


def sample_report() -> PrivacyReport:
    """The report that the docstring of `PrivacyReport` shows."""
    return report.build_privacy_report(
        PARAMS,
        run_id='visits-2025-06',
        delta=1e-6,
        plan=(
            GroupPlan(label='cardiology', batches=2, noisy_count=493),
            GroupPlan(label='dermatology', batches=3, noisy_count=771),
        ),
        corpus=TOTALS,
        settings={
            'model': 'gemma3-1b',
            'private_prompt': 'Here is a visit note:\n{context}\nAnother one:',
            'input_format': 'jsonl',
            'max_record_chars': 2000,
        },
        versions={'dp-corpus': '0.1.0', 'gemma': '3.3.0', 'jax': '0.7.1', 'python': '3.12.11'},
        noisy_counts_rho=0.005,
        ledger=ledger_entry(0.005 + accounting.generation_rho(PARAMS)),
    )


def build(params: MechanismParams = PARAMS, **changes: typing.Any) -> PrivacyReport:
    arguments: dict[str, typing.Any] = {
        'run_id': 'run', 'delta': 1e-6, 'plan': ONE_LABEL, 'corpus': TOTALS, 'settings': {}, 'versions': {},
    }  # fmt: skip
    return report.build_privacy_report(params, **(arguments | changes))


def clusters(source: report.CentersSource = 'public', **changes: typing.Any) -> Clusters:
    is_public = source == 'public'
    arguments: dict[str, typing.Any] = {
        'source': source,
        'centers_rho': 0.01 if source == 'dp-k-means' else 0.0,
        'counts_rho': 0.0025,
        'embedder': 'tfidf',
        'embedder_fingerprint': 'e' * 64,
        'centers_fingerprint': 'c' * 64,
        'corpus_fingerprint': 'f' * 64 if is_public else None,
        'corpus_texts': 1000 if is_public else None,
        'center_counts': CENTER_COUNTS,
    }
    return Clusters(**(arguments | changes))


def clustered(
    params: MechanismParams = PARAMS, source: report.CentersSource = 'public', **changes: typing.Any
) -> PrivacyReport:
    arguments = {'plan': CLUSTERED, 'noisy_counts_rho': 0.002, 'clusters': clusters(source)}
    return build(params, **(arguments | changes))


def batch_loss(batch: int, ups: list[float], downs: list[float], places: list[int]) -> BatchLoss:
    return BatchLoss(
        batch_id=f'0000-{batch:06d}', minus_log_alpha=tuple(ups), log_beta=tuple(downs),
        places=tuple(places), is_private=tuple(place >= 0 for place in places),
    )  # fmt: skip


LOSSES = [
    batch_loss(1, [0.5, 0.1, 0.2], [0.1, 0.4, 0.3], [0, 1, 0]),
    batch_loss(0, [0.25, 0.0], [0.75, 0.0], [0, 1]),
]


def restricted_report() -> RestrictedReport:
    return RestrictedReport(
        run_id='run',
        records_read=98_765,
        rejected_by_reason={'blank_text': 4_321},
        contexts_per_batch={'0000-000000': 24_680},
        true_counts_by_group=(GroupContexts(restricted_label=None, true_count=13_579),),
        losses=report.ex_post_losses(LOSSES, MEDIAN),
    )


def test_golden_sample_in_the_docstring() -> None:
    _, _, sample = (inspect.getdoc(PrivacyReport) or '').partition('the same order)::\n')
    shown = yaml.safe_load(textwrap.dedent(sample) + '\n')  # getdoc drops the last line break
    written = json.loads(sample_report().to_json())
    assert shown == written
    assert list(shown) == list(written), 'the order of the keys is part of the schema'


def test_docstring_examples() -> None:
    assert doctest.testmod(report).failed == 0


PARAMS_OF_ALL_KINDS = [
    pytest.param(PARAMS, id='example'),
    pytest.param(dataclasses.replace(PARAMS, threshold=None, threshold_noise_scale=None), id='private-only'),
    pytest.param(dataclasses.replace(PARAMS, unit='user', examples_per_context=8), id='user'),
    pytest.param(dataclasses.replace(PARAMS, examples_per_context=4), id='slots'),
    pytest.param(dataclasses.replace(PARAMS, max_private_tokens=1, clip_bound=0.01), id='tiny-rho'),
    pytest.param(dataclasses.replace(PARAMS, max_private_tokens=500_000), id='huge-rho'),
    pytest.param(dataclasses.replace(PARAMS, aggregate='difference', clip_bound=1.0), id='difference'),
    pytest.param(MEDIAN, id='median'),
    pytest.param(dataclasses.replace(PARAMS, aggregate='median'), id='median-sparse-vector'),
    pytest.param(dataclasses.replace(PARAMS, aggregate='median', examples_per_context=4), id='median-slots'),
]
SOURCES = typing.get_args(report.CentersSource)


@pytest.mark.parametrize('params', PARAMS_OF_ALL_KINDS)
@pytest.mark.parametrize('source', [None, *SOURCES])
def test_round_trip(params: MechanismParams, source: report.CentersSource | None) -> None:
    before = build(params) if source is None else clustered(params, source)
    after = PrivacyReport.from_json(before.to_json())
    assert after == before
    assert after.to_json() == before.to_json()


def run_pasted(made: PrivacyReport) -> tuple[float, float]:
    """rho and epsilon as the text prints them that readers are told to run."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(made.reproduction, {})
    found = re.fullmatch(r'rho = (\S+), epsilon = (\S+)\n', printed.getvalue())
    assert found
    return float(found[1]), float(found[2])


@pytest.mark.parametrize('params', PARAMS_OF_ALL_KINDS)
@pytest.mark.parametrize('noisy_counts_rho', [0.0, 0.02])
@pytest.mark.parametrize('source', [None, 'public', 'dp-k-means'])
def test_pasted_arithmetic_gives_the_same_numbers(
    params: MechanismParams, noisy_counts_rho: float, source: report.CentersSource | None
) -> None:
    noisy = 700 if noisy_counts_rho else None
    plan = [GroupPlan(label='a', batches=3)] if source is None else CLUSTERED
    made = build(
        params,
        plan=[dataclasses.replace(group, noisy_count=noisy) for group in plan],
        noisy_counts_rho=noisy_counts_rho,
        clusters=None if source is None else clusters(source),
    )
    in_advance = noisy_counts_rho + {None: 0, 'public': 0.0025, 'dp-k-means': 0.0125}[source]
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
@pytest.mark.parametrize('source', SOURCES)
def test_the_numbers_put_into_the_formulas_give_the_stage(
    params: MechanismParams, source: report.CentersSource
) -> None:
    made = clustered(params, source)
    for stage in made.stages:
        if stage.rho is not None:
            arithmetic = stage.numbers.replace('·', '*').replace('²', '**2').replace('½', '0.5')
            assert eval(arithmetic) == pytest.approx(stage.rho, rel=1e-5), stage.name
    for row in made.sensitivities:
        arithmetic = row.formula.replace('2c', '2*c')
        assert eval(arithmetic, {'c': params.clip_bound, 's': params.batch_size}) == pytest.approx(row.value)


def test_cost_is_that_of_the_cap_and_not_of_the_tokens_used() -> None:
    few = build(corpus=dataclasses.replace(TOTALS, private_tokens=1))
    many = build(corpus=dataclasses.replace(TOTALS, private_tokens=1_000_000))
    assert few.epsilon == many.epsilon
    assert few.stages == many.stages


def test_slots_double_both_sensitivities_and_say_so() -> None:
    plain, slots = build(), build(dataclasses.replace(PARAMS, examples_per_context=4))
    assert [row.value for row in slots.sensitivities] == [2 * row.value for row in plain.sensitivities]
    assert slots.rho_total == pytest.approx(4 * plain.rho_total)
    assert 'replace' in slots.unit_of_privacy and 'double' in slots.unit_of_privacy
    assert 'double' not in plain.unit_of_privacy


def with_ledger(before: float = 0.25, **changes: typing.Any) -> PrivacyReport:
    return build(ledger=ledger_entry(accounting.generation_rho(PARAMS), before, **changes))


def test_the_guarantee_of_all_runs_is_that_of_the_ledger() -> None:
    made = with_ledger()
    assert made.ledger is not None
    together = made.covered_together or ''
    assert together.startswith("All 2 runs on dataset 'visits' that the ledger has charged up to")
    shown = report.format_up(made.ledger.epsilon_after)
    assert f'together ρ-zCDP for ρ = {report.format_up(made.ledger.rho_after)}' in together
    assert (
        f'(ε = {shown}, δ = 1e-6)-differentially private, under adding or removing any one record' in together
    )
    assert 'the budget bounds all of them in place of the sum: ρ = 1.06, or ε = 8 at this δ.' in together
    assert f'Covered together: {together[0].lower()}{together[1:]}' in made.data_accesses
    assert any("the same name, 'visits'" in row for row in made.assumptions_of_curator)
    # The run's own guarantee stays its own.
    assert made.guarantee == build().guarantee and made.epsilon == build().epsilon


def test_a_first_run_is_not_called_several() -> None:
    first = with_ledger(0.0, run_number=1).covered_together or ''
    assert (
        first.startswith("The first run on dataset 'visits'")
        and 'together' not in first
        and 'in place of' not in first
    )
    budget = with_ledger(0.0, run_number=1, epsilon_budget=None, rho_budget=1.5).covered_together or ''
    shown = report.format_up(accounting.epsilon_from_rho(1.5, 1e-6))
    assert budget.endswith(f'past its budget of ρ = 1.5, or ε = {shown} at this δ.')


@pytest.mark.parametrize('params', [PARAMS, MEDIAN])
def test_without_a_ledger_the_report_says_so(params: MechanismParams) -> None:
    made = build(params)
    assert made.ledger is None and made.covered_together is None
    assert any('this run was not charged to a ledger' in row for row in made.not_covered)
    assert any('a budget that the curator keeps' in row for row in made.assumptions_of_curator)
    assert len(made.not_covered) == 2


def test_a_ledger_goes_round() -> None:
    before = with_ledger()
    assert PrivacyReport.from_json(before.to_json()) == before


@pytest.mark.parametrize('made', [MEDIAN, PARAMS])
def test_a_run_without_that_price_has_no_entry(made: MechanismParams) -> None:
    with pytest.raises(ValueError, match='charged=0.2'):
        build(made, ledger=ledger_entry(0.2))


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        ({'run_number': 0}, 'run_number=0'),
        ({'run_number': 1}, 'run_number=1'),
        ({'rho': 0.0}, 'rho=0.0'),
        ({'rho_after': 0.5}, 'rho_after=0.5'),
        ({'epsilon_after': 1.0}, 'epsilon_after=1.0'),
        ({'delta': 1e-7}, 'epsilon_after'),
        ({'rho_budget': 0.4}, 'rho_budget=0.4'),
    ],
)
def test_an_entry_that_contradicts_itself_is_refused(changes: dict[str, typing.Any], message: str) -> None:
    assert ledger_entry(0.2).rho_after == 0.45
    with pytest.raises(ValueError, match=re.escape(message)):
        dataclasses.replace(ledger_entry(0.2), **changes)


@given(st.floats(min_value=1e-12, max_value=1e12), st.integers(min_value=1, max_value=8))
def test_rounding_down_never_overstates(value: float, digits: int) -> None:
    shown = float(report.format_down(value, digits))
    assert shown <= value * (1 + 1e-11)
    assert shown >= value * (1 - 10.0 ** (1 - digits)) * (1 - 1e-12)


def test_user_unit_is_named_everywhere() -> None:
    made = build(dataclasses.replace(PARAMS, unit='user', examples_per_context=8))
    assert made.unit_of_privacy.startswith('One user') and 'at most 8 records' in made.unit_of_privacy
    assert 'any one user' in made.guarantee and 'one user added or removed' in made.adjacency
    assert any('One person has one unit id' in row for row in made.assumptions_of_curator)


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


def test_declared_number_wins_over_noisy_counts() -> None:
    plan = [GroupPlan(label='a', batches=2, noisy_count=500), GroupPlan(label='b', batches=1, noisy_count=-3)]
    noisy = build(plan=plan, noisy_counts_rho=0.01)
    assert (noisy.units, noisy.units_source) == (497, 'noisy')
    declared = build(plan=plan, noisy_counts_rho=0.01, declared_units=510)
    assert (declared.units, declared.units_source) == (510, 'declared')


@given(st.floats(min_value=1e-12, max_value=1e12), st.integers(min_value=1, max_value=8))
def test_rounding_up_never_understates(value: float, digits: int) -> None:
    shown = float(report.format_up(value, digits))
    assert shown >= value * (1 - 1e-11)
    # At most one unit in the last shown digit too much.
    assert shown <= value * (1 + 10.0 ** (1 - digits)) * (1 + 1e-12)


@given(st.floats(min_value=1e-300, max_value=1e300))
def test_exact_format_reads_back(value: float) -> None:
    assert float(report.format_exact(value)) == value


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        ({'settings': {'records_read': 12}}, 'records_read'),
        ({'settings': {'contexts_per_batch': 12}}, 'contexts_per_batch'),
        ({'settings': {'losses': 1.5}}, 'losses'),
        ({'settings': {'ex_post_epsilon': 1.5}}, 'ex_post_epsilon'),
        ({'plan': [GroupPlan(label='a', cluster=1, batches=1)]}, 'groups=1, kept centres=0'),
        ({'clusters': clusters()}, 'groups=1, kept centres=3'),
        (
            {'clusters': clusters(), 'plan': CLUSTERED[::-1], 'noisy_counts_rho': 0.1},
            'groups=3, kept centres=3',
        ),
        ({'settings': {'clip_bound': 12.0}}, 'clip_bound'),
        ({'settings': {'labels': ['a', 'b']}}, "name='labels' of type list"),
        ({'settings': {'scale': math.inf}}, "name='scale'"),
        ({'delta': 0.0}, 'delta=0.0'),
        ({'delta': 1.0}, 'delta=1.0'),
        ({'plan': []}, 'groups=0'),
        ({'plan': [GroupPlan(label=None, batches=1, noisy_count=5)]}, 'noisy_counts_rho=0.0'),
        ({'noisy_counts_rho': 0.1}, 'noisy_counts_rho=0.1'),
        (
            {'plan': [GroupPlan(label='a', batches=1, noisy_count=5), GroupPlan(label='b', batches=1)],
             'noisy_counts_rho': 0.1},
            'groups with a noisy count=1',
        ),
    ],
)  # fmt: skip
def test_building_refuses(changes: dict[str, typing.Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        build(**changes)


def edit(path: str, value: typing.Any) -> str:
    """The sample's JSON with one value set; the path is dotted, an index a number."""
    data = json.loads(sample_report().to_json())
    *parents, last = [int(part) if part.isdecimal() else part for part in path.split('.')]
    place = data
    for part in parents:
        place = place[part]
    place[last] = value
    return json.dumps(data)


@pytest.mark.parametrize(
    ('path', 'value', 'message'),
    [
        ('records_read', 1201, "unknown=['records_read']"),
        ('corpus.true_count', 5, "unknown=['true_count']"),
        ('stages.0.sigma', 5, r'PrivacyReport.stages[0]'),
        ('schema_version', 1, 'schema_version=3'),
        ('schema', 'other', "schema='dp-corpus/privacy-report'"),
        ('audience', 'Nobody.', 'Anyone may read'),
        ('run_id', 5, 'PrivacyReport.run_id'),
        ('plan.1.batches', True, 'PrivacyReport.plan[1].batches'),
        ('plan', {}, 'PrivacyReport.plan'),
        ('settings.model', ['gemma'], "PrivacyReport.settings['model']"),
        ('units_source', 'true', 'PrivacyReport.units_source'),
        ('epsilon', 1.0, 'epsilon=1.0'),
        ('epsilon', None, 'epsilon=None'),
        ('rho_total', None, 'rho_total=None'),
        ('rho_per_private_token', None, "statement='differential privacy'"),
        ('stages.1.rho', None, "statement='differential privacy'"),
        ('statement', 'ex-post', "statement='ex-post'"),
        ('statement', 'none', "statement='none'"),
        ('mechanism.aggregate', 'median', "Expected statement='ex-post'"),
        ('audience', report.RESEARCH_ONLY, 'Anyone may read'),
        ('delta', 1e-9, 'computed='),
        ('rho_total', 0.1, 'rho_total=0.1'),
        ('stages.0.rho', 0.1, 'sum='),
        ('epsilon', math.nan, 'NaN'),
    ],
)
def test_reading_refuses(path: str, value: typing.Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        PrivacyReport.from_json(edit(path, value))


@pytest.mark.parametrize('name', [field.name for field in dataclasses.fields(PrivacyReport)])
def test_reading_refuses_a_missing_field(name: str) -> None:
    data = json.loads(sample_report().to_json())
    del data[name]
    with pytest.raises(ValueError, match=re.escape(f"missing=['{name}']")):
        PrivacyReport.from_json(json.dumps(data))


@pytest.mark.parametrize('text', ['', '[]', '3', 'null', '{"run_id": "a", "run_id": "b"}'])
def test_reading_refuses_what_is_no_report(text: str) -> None:
    with pytest.raises(ValueError, match='Expect'):
        PrivacyReport.from_json(text)


def test_restricted_report_round_trip_is_marked() -> None:
    text = restricted_report().to_json()
    assert RestrictedReport.from_json(text) == restricted_report()
    assert list(json.loads(text))[:3] == ['schema', 'schema_version', 'audience']
    assert json.loads(text)['audience'].startswith('Restricted to the curator')


def test_restricted_repr_shows_no_number() -> None:
    shown = repr(restricted_report()) + repr(restricted_report().true_counts_by_group)
    assert not re.search(r'98_?765|4_?321|24_?680|13_?579|blank_text', shown)
    assert "run_id='run'" in shown


def test_one_report_is_never_read_as_the_other() -> None:
    with pytest.raises(ValueError, match="schema='dp-corpus/privacy-report'"):
        PrivacyReport.from_json(restricted_report().to_json())
    with pytest.raises(ValueError, match="schema='dp-corpus/restricted-report'"):
        RestrictedReport.from_json(sample_report().to_json())


def reachable(annotation: typing.Any) -> set[typing.Any]:
    """All classes that an annotation or a dataclass's fields mention, at any depth."""
    if dataclasses.is_dataclass(annotation):
        found: set[typing.Any] = {annotation}
        for hint in typing.get_type_hints(annotation).values():
            found |= reachable(hint)
        return found
    found = {annotation} if isinstance(annotation, type) else set()
    for argument in typing.get_args(annotation):
        found |= reachable(argument)
    return found


def field_names(cls: type) -> set[str]:
    return {
        field.name
        for member in reachable(cls)
        if dataclasses.is_dataclass(member)
        for field in dataclasses.fields(member)
    }


def test_no_restricted_field_can_appear_in_the_privacy_report() -> None:
    public, restricted = reachable(PrivacyReport), reachable(RestrictedReport)
    shared = {cls for cls in public & restricted if dataclasses.is_dataclass(cls)}
    assert not shared
    # The run's public name is what ties the two together.
    assert field_names(PrivacyReport) & field_names(RestrictedReport) == {'run_id'}
    assert 'object' not in {cls.__name__ for cls in public}, 'an untyped field would let anything in'
    # Nor can the builder be handed one.
    for parameter in typing.get_type_hints(report.build_privacy_report).values():
        if parameter is not PrivacyReport:
            assert not reachable(parameter) & {RestrictedReport, GroupContexts}


def test_reachability_oracle_sees_into_containers() -> None:
    assert GroupContexts in reachable(RestrictedReport)
    assert RestrictedReport in reachable(tuple[dict[str, RestrictedReport] | None, ...])


def test_the_three_statements() -> None:
    assert build().statement == clustered(source='dp-k-means').statement == 'differential privacy'
    assert build(MEDIAN).statement == clustered(MEDIAN, 'dp-k-means').statement == 'ex-post'
    assert clustered(source='k-means').statement == clustered(MEDIAN, 'k-means').statement == 'none'


@pytest.mark.parametrize('made', [build(MEDIAN), clustered(MEDIAN), clustered(source='k-means')])
def test_without_a_price_in_advance_no_total_is_stated(made: PrivacyReport) -> None:
    totals = (made.epsilon, made.epsilon_closed_form, made.rho_total, made.rho_per_private_token)
    assert totals == (None,) * 4
    with pytest.raises(ValueError, match='do not edit'):
        dataclasses.replace(made, epsilon=1.0)


@pytest.mark.parametrize('sparse', [False, True])
def test_median_says_what_kind_of_statement_it_makes(sparse: bool) -> None:
    params = dataclasses.replace(PARAMS, aggregate='median') if sparse else MEDIAN
    made = clustered(params)
    for words in ('no (ε, δ) guarantee', 'data-dependent and ex-post', 'not published', 'curator holds it'):
        assert words in made.guarantee
    priced = {stage.name: stage.rho for stage in made.stages}
    assert priced['Noisy counts per centre'] == 0.0025 and priced['Noisy counts'] == 0.002
    assert priced['Private tokens'] is None and priced.get('Sparse-vector test') is None
    assert ('Sparse-vector test' in priced) == sparse
    assert not any('median' in row.quantity or 'logits' in row.quantity for row in made.sensitivities)
    assert 'noisy counts alone' not in build(MEDIAN).guarantee
    assert 'No figure of this report' in build(MEDIAN).delta_relation


def test_a_median_report_is_a_function_of_public_values_alone() -> None:
    # The only way in for a loss would be a parameter that can hold one.
    accepted = set().union(*map(reachable, typing.get_type_hints(report.build_privacy_report).values()))
    of_losses = {cls for cls in reachable(report.ExPostLosses) if dataclasses.is_dataclass(cls)}
    assert len(of_losses) == 3 and not accepted & (of_losses | {BatchLoss})
    few, many = (
        clustered(MEDIAN, corpus=dataclasses.replace(TOTALS, examples=number)) for number in (1, 1000)
    )
    assert dataclasses.replace(few, corpus=many.corpus) == many


def test_k_means_on_private_records_is_research_only() -> None:
    made = clustered(source='k-means')
    assert made.guarantee.startswith('RESEARCH ONLY: no guarantee.') and 'infinite' in made.guarantee
    assert made.audience == json.loads(made.to_json())['audience'] == report.RESEARCH_ONLY
    assert [stage.rho for stage in made.stages][:2] == [None, 0.0025]
    assert made.reproduction == ''
    assert any('Nothing of this run is published' in row for row in made.assumptions_of_curator)
    assert not any('public and was chosen' in row for row in made.assumptions_of_curator)


def test_public_centers_are_free_and_vouched_for() -> None:
    public, private = clustered(), clustered(source='dp-k-means')
    assert [stage.name for stage in public.stages][:2] == ['Noisy counts per centre', 'Noisy counts']
    assert private.stages[0].name == 'Cluster centres' and private.stages[1:] == public.stages
    assert public.rho_total is not None and private.rho_total == pytest.approx(public.rho_total + 0.01)
    assert any('chosen without looking' in row for row in public.assumptions_of_curator[1:])
    by = [row.quantity for row in public.sensitivities if 'counts' in row.quantity]
    assert by == [
        'The vector of counts by label and centre (L2)',
        'The vector of counts by label and cluster (L2)',
    ]


def test_difference_costs_as_the_mean_does_and_names_its_vocabulary() -> None:
    mean = dataclasses.replace(PARAMS, clip_bound=1.0)
    difference = dataclasses.replace(mean, aggregate='difference')
    assert build(difference).epsilon == build(mean).epsilon
    enforced = '\n'.join(build(difference).assumptions_enforced)
    assert 'log-probabilities' in enforced and 'Top-k+' in enforced
    assert 'Top-k+' not in '\n'.join(
        build(dataclasses.replace(difference, public_top_k=None)).assumptions_enforced
    )


def test_noisy_counts_of_a_label_take_one_line() -> None:
    lines = [line.strip().rstrip(',') for line in clustered().to_json().splitlines()]
    assert '"counts": [300, -2, 41, 180]' in lines and '"kept": [1]' in lines
    tricky = clustered(settings={'prompt': '[\n  1,\n  2\n]'})
    assert PrivacyReport.from_json(tricky.to_json()) == tricky


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        ({'counts_rho': 0.0}, 'counts_rho=0.0'),
        ({'centers_rho': 0.1}, 'centers_rho=0.1'),
        ({'source': 'dp-k-means'}, 'centers_rho=0.0'),
        ({'corpus_texts': None}, "source='public'"),
        ({'source': 'k-means'}, "source='k-means'"),
        ({'center_counts': ()}, 'labels=0'),
        ({'center_counts': (CENTER_COUNTS[0], CenterCounts(label='b', kept=(0,), counts=(1,)))}, 'labels=2'),
        ({'center_counts': (CenterCounts(label='b', kept=(1,), counts=(1,)),)}, 'kept=(1,)'),
        ({'center_counts': (CenterCounts(label='b', kept=(1, 0), counts=(1, 2)),)}, 'kept=(1, 0)'),
    ],
)
def test_clusters_refuse(changes: dict[str, typing.Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        dataclasses.replace(clusters(), **changes)


def test_plan_is_summed_over_the_clusters_of_a_label() -> None:
    assert report.totals_by_label(CLUSTERED) == (('a', 2, 3, 694), ('b', 1, 3, 771))
    assert report.totals_by_label(ONE_LABEL) == ((None, 1, 4, None),)


def test_losses_of_a_run_are_those_of_its_batches() -> None:
    found = report.ex_post_losses(LOSSES, MEDIAN)
    assert list(found.loss_by_batch) == ['0000-000000', '0000-000001']
    assert found.run_ex_post_epsilon == run_epsilon(LOSSES, MEDIAN) == pytest.approx(0.8)
    assert found.run_paper_epsilon == pytest.approx(0.5 + 0.4 + 0.3)
    assert found.loss_by_batch['0000-000000'].ex_post_epsilon == pytest.approx(0.75)
    first, second = found.loss_by_place
    assert (first.tokens, second.tokens) == (3, 2)
    assert first.mean == pytest.approx((0.5 + 0.3 + 0.75) / 3)
    assert first.lower_decile == pytest.approx(0.34) and first.upper_decile == pytest.approx(0.7)


def test_losses_by_place_leave_public_tokens_out() -> None:
    params = dataclasses.replace(PARAMS, aggregate='median')
    batch = BatchLoss(
        batch_id='0000-000000', minus_log_alpha=(0.2, 0.0, 0.4), log_beta=(0.1, 0.0, 0.1),
        places=(0, 1, 2), is_private=(True, False, True),
    )  # fmt: skip
    found = report.ex_post_losses([batch], params)
    assert [place.tokens for place in found.loss_by_place] == [1, 0, 1]
    assert [place.mean for place in found.loss_by_place] == pytest.approx([0.2, 0.0, 0.4])
    runs = 2 * accounting.sparse_vector_pure_cost(params)
    assert found.run_ex_post_epsilon == pytest.approx(0.6 + runs)


def test_losses_do_not_depend_on_the_order_of_the_batches() -> None:
    assert report.ex_post_losses(LOSSES[::-1], MEDIAN) == report.ex_post_losses(LOSSES, MEDIAN)


@pytest.mark.parametrize(('losses', 'params'), [(LOSSES, PARAMS), ([], MEDIAN)])
def test_losses_are_of_median_runs_only(losses: list[BatchLoss], params: MechanismParams) -> None:
    with pytest.raises(ValueError, match='leave the losses out'):
        report.ex_post_losses(losses, params)


def test_sample_of_the_restricted_report_is_one() -> None:
    _, _, sample = (inspect.getdoc(RestrictedReport) or '').partition('Sample::\n')
    shown = RestrictedReport.from_json(sample)
    assert shown.losses is not None and len(shown.losses.loss_by_batch) == len(shown.contexts_per_batch)


def test_repr_of_losses_shows_no_number() -> None:
    losses = report.ex_post_losses(LOSSES, MEDIAN)
    for shown in (losses, losses.loss_by_batch['0000-000000'], losses.loss_by_place[0]):
        assert not re.search(r'\d', repr(shown))
