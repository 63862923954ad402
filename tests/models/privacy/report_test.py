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
from models.privacy.params import MechanismParams
from models.privacy.report import CorpusTotals, GroupPlan, LabelContexts, PrivacyReport, RestrictedReport

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
ONE_LABEL = (GroupPlan(label=None, batches=4),)
TOTALS = CorpusTotals(examples=96, private_tokens=1412, public_tokens=6125, truncated=7)


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
    )


def build(params: MechanismParams = PARAMS, **changes: typing.Any) -> PrivacyReport:
    arguments: dict[str, typing.Any] = {
        'run_id': 'run', 'delta': 1e-6, 'plan': ONE_LABEL, 'corpus': TOTALS, 'settings': {}, 'versions': {},
    }  # fmt: skip
    return report.build_privacy_report(params, **(arguments | changes))


def restricted_report() -> RestrictedReport:
    return RestrictedReport(
        run_id='run',
        records_read=98_765,
        rejected_by_reason={'blank_text': 4_321},
        contexts_per_batch={'0000-000000': 24_680},
        true_counts_by_label=(LabelContexts(restricted_label=None, true_count=13_579),),
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
]


@pytest.mark.parametrize('params', PARAMS_OF_ALL_KINDS)
def test_round_trip(params: MechanismParams) -> None:
    before = build(params)
    after = PrivacyReport.from_json(before.to_json())
    assert after == before
    assert after.to_json() == before.to_json()


@pytest.mark.parametrize('params', PARAMS_OF_ALL_KINDS)
@pytest.mark.parametrize('noisy_counts_rho', [0.0, 0.02])
def test_pasted_arithmetic_gives_the_same_numbers(params: MechanismParams, noisy_counts_rho: float) -> None:
    noisy = 700 if noisy_counts_rho else None
    made = build(
        params, plan=[GroupPlan(label='a', batches=3, noisy_count=noisy)], noisy_counts_rho=noisy_counts_rho
    )
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(made.reproduction, {})  # the text that readers are told to run
    found = re.fullmatch(r'rho = (\S+), epsilon = (\S+)\n', printed.getvalue())
    assert found
    rho, epsilon = found.groups()
    assert float(rho) == pytest.approx(made.rho_total, rel=1e-9)
    assert float(epsilon) == pytest.approx(made.epsilon, rel=1e-8)
    imports = re.findall(r'^(?:from|import) (\w+)', made.reproduction, flags=re.M)
    assert imports == ['math'], 'readers need nothing but Python'


@pytest.mark.parametrize('params', PARAMS_OF_ALL_KINDS)
def test_the_numbers_put_into_the_formulas_give_the_stage(params: MechanismParams) -> None:
    noisy_plan = [GroupPlan(label=None, batches=1, noisy_count=300)]
    made = build(params, plan=noisy_plan, noisy_counts_rho=0.0123)
    for stage in made.stages:
        arithmetic = stage.numbers.replace('·', '*').replace('²', '**2').replace('½', '0.5')
        assert eval(arithmetic) == pytest.approx(stage.rho, rel=1e-5), stage.name
    assert made.rho_total == pytest.approx(0.0123 + accounting.generation_rho(params), rel=1e-12)
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
        ({'settings': {'clip_bound': 12.0}}, 'clip_bound'),
        ({'settings': {'labels': ['a', 'b']}}, "name='labels' of type list"),
        ({'settings': {'scale': math.inf}}, "name='scale'"),
        ({'delta': 0.0}, 'delta=0.0'),
        ({'delta': 1.0}, 'delta=1.0'),
        ({'plan': []}, 'labels=0'),
        ({'plan': [GroupPlan(label=None, batches=1, noisy_count=5)]}, 'noisy_counts_rho=0.0'),
        ({'noisy_counts_rho': 0.1}, 'noisy_counts_rho=0.1'),
        (
            {'plan': [GroupPlan(label='a', batches=1, noisy_count=5), GroupPlan(label='b', batches=1)],
             'noisy_counts_rho': 0.1},
            'labels with a noisy count=1',
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
        ('schema_version', 2, 'schema_version=1'),
        ('schema', 'other', "schema='dp-corpus/privacy-report'"),
        ('audience', 'Nobody.', 'Anyone may read'),
        ('run_id', 5, 'PrivacyReport.run_id'),
        ('plan.1.batches', True, 'PrivacyReport.plan[1].batches'),
        ('plan', {}, 'PrivacyReport.plan'),
        ('settings.model', ['gemma'], "PrivacyReport.settings['model']"),
        ('units_source', 'true', 'PrivacyReport.units_source'),
        ('epsilon', 1.0, 'epsilon=1.0'),
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
    shown = repr(restricted_report()) + repr(restricted_report().true_counts_by_label)
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
            assert not reachable(parameter) & {RestrictedReport, LabelContexts}


def test_reachability_oracle_sees_into_containers() -> None:
    assert LabelContexts in reachable(RestrictedReport)
    assert RestrictedReport in reachable(tuple[dict[str, RestrictedReport] | None, ...])
