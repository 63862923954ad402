"""The ledger under fire: any sequence of what its clients may do, against a model that adds up by hand.

Every step is one of the ledger's operations, by one of two clients or by both at once, or one that is cut
short before or after its commit. The model of `tests.oracles.ledger` says what may be answered; after each
step both databases have to hold exactly what the model holds. Broken ledgers are caught by the same steps.
"""

import contextlib
import copy
import dataclasses
import functools
import json
import math
import os
import pathlib
import shutil
import tempfile
import threading
import uuid
from collections.abc import Callable
from concurrent import futures
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.errors import FlakyFailure
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from models.finetuning.adapter import AdapterCard
from models.privacy import accounting, report
from models.privacy.accounting import RunCost, subsampled
from models.prompt_templates import PromptTemplate
from pipeline import methods
from pipeline.asked.config import job_config
from pipeline.ledger import account as accounts
from pipeline.ledger import budget
from pipeline.ledger import ledger as ledgers
from pipeline.ledger.budget import BudgetExceeded, NotGaussian, OrderTooLow
from pipeline.ledger.ledger import Ledger
from pipeline.methods import start_corpus
from pipeline.run import charge
from pipeline.settings.job_config import JobConfig
from tests.models.privacy.report.samples import released_report
from tests.oracles import ledger as oracle
from transforms import run_files

DATASETS = ('visits', 'mails', 'forms')
RUNS = tuple(f'run-{number}' for number in range(9))
KEYS, IDENTITIES = ('k' * 32, 'z' * 32), ('i' * 64, 'j' * 64)
# Words that each refusal has to have.
WHY = {
    'unit': r'Expected unit=',
    'key': 'key of the charged run',
    'identity': 'another input, config, model or code',
    'cost': 'was charged on',
    'budget': 'what is left of the budget',
    'order': 'Give --omega',
    'unknown': 'which it does not hold',
    'held': 'which the ledger holds',
    'reason': 'Expected a reason',
    'gaussian': 'a cost that Gaussian noise explains',
    'delta': 'at which runs were charged',
    'not charged': 'Expected a run that was charged',
}


# ------------------------------------------------------------------ what runs cost


def _costs(folder: pathlib.Path) -> dict[str, RunCost]:
    """The cost of runs of each kind, as the settings say; in order of their names."""
    (folder / 'corpus.jsonl').write_text(''.join(json.dumps({'text': f'Text {n}.'}) + '\n' for n in range(8)))
    common = {'input': str(folder / 'in.jsonl'), 'output': str(folder / 'out'), 'delta': 1e-6}
    votes = {'aggregate': 'difference', 'accounting': 'worst-case', 'epsilon': 1.0, 'records': 5_000}
    tuned = {
        'method': 'fine-tune', 'records': 5_000, 'noise_multiplier': 2.0, 'tuning_steps': 200,
        'expected_batch_size': 100,
    }  # fmt: skip
    kinds: dict[str, dict[str, Any]] = {
        'votes': votes,
        'sample': votes | {'epsilon': 0.6, 'sample_rate': 0.2},
        'reference': votes | {'epsilon': 2.0, 'reference_rounds': 2},
        'individual': votes | {'epsilon': 0.8, 'accounting': 'individual'},
        'orders that end early': votes | {'epsilon': 3.0, 'accounting': 'individual', 'omega': 5.0},
        'adapter': tuned,
        'large adapter': tuned | {'noise_multiplier': 1.0},
        'evolve': {'method': 'evolve', 'epsilon': 1.5, 'records': 5_000, 'candidates': 20, 'examples': 10},
        'refine': {
            'method': 'refine', 'epsilon': 0.3, 'records': 5_000, 'corpus': str(folder / 'corpus.jsonl')
        },
    }  # fmt: skip
    return {name: methods.solve(job_config(**common, **values)).cost for name, values in kinds.items()}


# ------------------------------------------------------------------ operations


class Died(BaseException):
    """The end of a client's process."""


@dataclasses.dataclass(frozen=True)
class Answer:
    """The result of an operation.

    Attributes:
        refusal: Key of `WHY`; None where it did what it was asked to.
        value: The value that it returned.
    """

    refusal: str | None
    value: Any = None


@dataclasses.dataclass(frozen=True)
class Operation:
    """A request of a client.

    Attributes:
        act: Asks a ledger.
        follow: Takes the model where the answer says, or fails.
    """

    act: Callable[[Ledger], Any]
    follow: Callable[['Model', Answer], None]

    def ask(self, ledger: Ledger) -> Answer:
        try:
            return Answer(None, self.act(ledger))
        except (ValueError, BudgetExceeded) as error:
            said = str(error)
            found = [name for name, words in WHY.items() if words in said]
            assert len(found) == 1, f'a refusal that says no reason, or several: {said}'
            assert said.startswith('Expected ') and ', got ' in said
            kinds = {'budget': BudgetExceeded, 'order': OrderTooLow, 'gaussian': NotGaussian}
            assert type(error) is kinds.get(found[0], ValueError)
            return Answer(found[0], error)


Model = dict[str, oracle.Dataset]


def near(found: float, expected: float, tolerance: float = 1e-6) -> bool:
    return math.isclose(found, expected, rel_tol=tolerance, abs_tol=1e-12)


def within(found: float, bounds: tuple[Any, Any]) -> bool:
    least, most = map(float, bounds)
    return least * (1 - 1e-6) - 1e-12 <= found <= most * (1 + 1e-6) + 1e-12


def reserving(
    dataset: str, name: str, cost: RunCost, *, key: str = KEYS[0], identity: str = IDENTITIES[0], unit: str
) -> Operation:
    by_hand = oracle.Cost.of(cost.to_json_object())

    def act(ledger: Ledger) -> report.LedgerEntry:
        return ledger.reserve(
            dataset, run_id=name, unit=unit, cost=cost, identity=identity, key_commitment=key
        )  # type: ignore[arg-type]

    def follow(model: Model, answer: Answer) -> None:
        _follow_charge(model, answer, dataset, name, by_hand, key, identity, unit)

    return Operation(act, follow)


def _follow_charge(
    model: Model,
    answer: Answer,
    dataset: str,
    name: str,
    cost: oracle.Cost,
    key: str | None,
    identity: str,
    unit: str,
) -> None:
    if dataset not in model:
        assert answer.refusal == 'unknown', answer
        return
    of = model[dataset]
    allowed = of.refusals(name, cost, key, identity, unit)
    assert answer.refusal in allowed, (answer, allowed)
    if answer.refusal is not None:
        of.log.append(('refused', name))
        if answer.refusal == 'budget':
            error = answer.value
            assert (error.dataset, error.delta) == (dataset, of.delta) and near(error.budget, of.budget)
            assert within(error.spent, of.spent()) and f'ledger budget {dataset}' in str(error)
        return
    if (known := of.run(name)) is not None:
        assert (answer.value, repr(answer.value)) == (known.entry, repr(known.entry))
        of.log.append(('resumed', name))
        return
    before = of.spent()
    of.charge(oracle.Run(name, cost, key, identity, answer.value))
    of.log.append(('reserved', name))
    _check_entry(answer.value, of, dataset, before)


def _check_entry(
    entry: report.LedgerEntry, of: oracle.Dataset, dataset: str, before: tuple[Any, Any]
) -> None:
    """Checks the answer to a charge, and that all charges are within the budget."""
    run = of.runs[-1]
    assert (entry.dataset, entry.run_number, entry.delta) == (dataset, len(of.runs), of.delta)
    assert entry.epsilon_budget == of.given_epsilon and near(entry.rho_budget, of.budget)
    after = of.spent()
    assert after[0] <= of.allowed * (1 + oracle.ROUNDING), 'more was charged than the budget'
    assert entry.rho_after <= entry.rho_budget * (1 + 2e-12)
    assert near(entry.rho_bound * (of.order or 1.0), of.bound)
    assert within(entry.rho_before, before) and within(entry.rho_after, after)
    assert within(entry.rho, of.price(run.cost, run.failure))
    assert isinstance(entry, report.GaussianLedgerEntry) == of.is_gaussian
    if isinstance(entry, report.GaussianLedgerEntry):
        together = math.fsum(each.failure for each in of.runs)
        assert near(entry.failure, run.failure) and near(entry.failure_after, together)
        assert entry.failure_after <= entry.failure_budget == of.failure_budget < of.delta
        at_most = oracle.epsilon_of_gaussian(entry.rho_after, of.delta - together)
        assert 0 <= entry.epsilon_after <= at_most * (1 + 1e-3)
        return
    order = of.present_order
    is_zcdp = not any(of_run.cost.sampled or math.isfinite(of_run.cost.omega) for of_run in of.runs)
    assert isinstance(entry, report.MixedLedgerEntry) != is_zcdp
    at_order = oracle.epsilon_of(entry.rho_after, of.delta, order)
    if is_zcdp:
        # Votes on texts alone are a Gaussian mechanism.
        is_gaussian = all(of_run.cost.is_gaussian for of_run in of.runs)
        converted = oracle.epsilon_of_gaussian if is_gaussian else oracle.epsilon_of
        assert near(entry.epsilon_after, converted(float(after[0]), of.delta), 1e-5)
    assert entry.epsilon_after <= at_order * (1 + 1e-6)


def adding(
    name: str, unit: str, delta: float, given: dict[str, float], kept: budget.PrivacyFilter = 'renyi'
) -> Operation:
    def act(ledger: Ledger) -> Any:
        return ledger.add_dataset(name, unit=unit, delta=delta, privacy_filter=kept, **given)  # type: ignore

    def follow(model: Model, answer: Answer) -> None:
        assert answer.refusal == ('held' if name in model else None), answer
        if name not in model:
            is_gaussian = kept == 'gaussian'
            model[name] = oracle.Dataset(unit, *_budget(given, delta, is_gaussian), delta, is_gaussian)
            model[name].log.append(('dataset added', None))

    return Operation(act, follow)


def _budget(given: dict[str, float], delta: float, is_gaussian: bool) -> tuple[float, float | None]:
    epsilon = given.get('epsilon')
    if epsilon is None:
        return given['rho'], None
    rho = oracle.rho_of_gaussian(epsilon, delta / 2) if is_gaussian else oracle.rho_of(epsilon, delta)
    return rho, epsilon


def changing(name: str, delta: float | None, given: dict[str, float], reason: str) -> Operation:
    def act(ledger: Ledger) -> Any:
        return ledger.change_budget(name, delta=delta, reason=reason, **given)  # type: ignore[arg-type]

    def follow(model: Model, answer: Answer) -> None:
        expected = 'reason' if not reason.strip() else 'unknown' if name not in model else None
        if expected is None:
            of = model[name]
            new = of.delta if delta is None else delta
            # The failures that were charged are parts of the one that stands.
            expected = 'delta' if of.is_gaussian and of.runs and new != of.delta else None
        assert answer.refusal == expected, answer
        if expected is None:
            of.change_budget(*_budget(given, new, of.is_gaussian), new)
            of.log.append(('budget changed', None))

    return Operation(act, follow)


def settling(dataset: str, name: str) -> Operation:
    def follow(model: Model, answer: Answer) -> None:
        if dataset not in model:
            assert answer.refusal == 'unknown', answer
            return
        of = model[dataset]
        run = of.run(name)
        assert answer.refusal == ('not charged' if run is None else None), answer
        if run is not None and not run.settled:
            of.runs[of.runs.index(run)] = dataclasses.replace(run, settled=True)
            of.log.append(('settled', name))

    return Operation(lambda ledger: ledger.settle(dataset, name), follow)


# ------------------------------------------------------------------ the machine

BUDGETS = st.sampled_from(
    [{'rho': 0.02}, {'rho': 0.06}, {'rho': 0.3}, {'rho': 0.9}, {'epsilon': 1.0}, {'epsilon': 3.0}]
)
DELTAS = st.sampled_from([1e-6, 1e-6, 1e-9])
FILTERS: st.SearchStrategy[budget.PrivacyFilter] = st.sampled_from(['renyi', 'gaussian'])
CLIENTS = st.integers(0, 1)
# Names of two runs more often than of all.
NAMES = st.one_of(st.sampled_from(RUNS), st.sampled_from(RUNS[:2]))
DATASET = st.sampled_from(('visits', 'visits', *DATASETS))


def operations(costs: dict[str, RunCost]) -> st.SearchStrategy[Operation]:
    """Any operation that writes."""
    units = st.sampled_from(('example', 'example', 'example', 'user'))
    wrong = st.sampled_from((0, 0, 0, 1))
    reservations = st.builds(
        lambda dataset, name, cost, key, identity, unit: reserving(
            dataset, name, costs[cost], key=KEYS[key], identity=IDENTITIES[identity], unit=unit
        ),
        DATASET, NAMES, st.sampled_from(sorted(costs)), wrong, wrong, units,
    )  # fmt: skip
    changes = st.builds(
        changing,
        DATASET,
        st.one_of(st.none(), DELTAS),
        BUDGETS,
        st.sampled_from(['more records', 'stop', ' ']),
    )
    return st.one_of(
        reservations,
        reservations,
        changes,
        st.builds(settling, DATASET, NAMES),
        st.builds(adding, DATASET, units, DELTAS, BUDGETS, FILTERS),
    )


def _die(_: sa.Connection) -> None:
    raise Died


def _cut(connection: sa.Connection) -> None:
    """The connection is lost on its way: a server ends it, a file is closed."""
    driver: Any = connection.connection.driver_connection
    if connection.dialect.name == 'sqlite':
        driver.close()
        return
    other = sa.create_engine(connection.engine.url, poolclass=sa.NullPool)
    with other.begin() as second:
        second.execute(sa.text('SELECT pg_terminate_backend(:pid, 5000)'), {'pid': driver.info.backend_pid})


_ENDS: dict[str, Callable[[sa.Connection], None]] = {'died': _die, 'cut': _cut}


class Machine(RuleBasedStateMachine):
    """Two clients of one ledger, and the model.

    Attributes:
        new_place: Makes a place for a ledger.
    """

    new_place: Callable[[], str]

    def __init__(self) -> None:
        super().__init__()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix='dp-ledger-'))
        self.costs = _known_costs()
        self.where = type(self).new_place()
        self.clients = [Ledger.create(self.where), Ledger.open(self.where)]
        self.watcher = Ledger.open(self.where)
        self.model: Model = {}

    def teardown(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    @initialize(delta=DELTAS, given=BUDGETS, kept=FILTERS)
    def begin(self, delta: float, given: dict[str, float], kept: budget.PrivacyFilter) -> None:
        self._one(0, adding('visits', 'example', delta, given, kept))

    def _one(self, client: int, operation: Operation) -> None:
        operation.follow(self.model, operation.ask(self.clients[client]))
        self._compare(self.model)

    @rule(client=CLIENTS, data=st.data())
    def operate(self, client: int, data: st.DataObject) -> None:
        self._one(client, data.draw(operations(self.costs)))

    @rule(client=CLIENTS, dataset=DATASET, name=NAMES, data=st.data())
    def resume(self, client: int, dataset: str, name: str, data: st.DataObject) -> None:
        """A run exactly as it was charged, where it was."""
        cost = data.draw(st.sampled_from(sorted(self.costs)))
        run = self.model[dataset].run(name) if dataset in self.model else None
        kept = [known for known, of in self.costs.items() if run and run.cost == _by_hand(of)]
        unit = self.model[dataset].unit if dataset in self.model else 'example'
        self._one(client, reserving(dataset, name, self.costs[(kept or [cost])[0]], unit=unit))

    @rule(data=st.data())
    def both_at_once(self, data: st.DataObject) -> None:
        """Two clients get answers as one after the other would, in one of both orders."""
        pair = [data.draw(operations(self.costs)) for _ in self.clients]
        start = threading.Barrier(2)

        def run(place: int) -> Answer:
            start.wait()
            return pair[place].ask(self.clients[place])

        with futures.ThreadPoolExecutor(2) as pool:
            answers = list(pool.map(run, range(2)))
        failures = []
        for order in ((0, 1), (1, 0)):
            model = copy.deepcopy(self.model)
            try:
                for place in order:
                    pair[place].follow(model, answers[place])
                self._compare(model)
            except AssertionError as failure:
                failures.append(failure)
            else:
                self.model = model
                return
        raise AssertionError(f'no order of the two explains {answers}') from failures[0]

    @rule(
        client=CLIENTS, how=st.sampled_from(sorted(_ENDS)), commit=st.sampled_from([1, 1, 2]), data=st.data()
    )
    def crash(self, client: int, how: str, commit: int, data: st.DataObject) -> None:
        """A client dies before its first or second commit, or its connection does; a new one asks again."""
        operation = data.draw(operations(self.costs))
        begun = 0

        def end(connection: sa.Connection) -> None:
            nonlocal begun
            begun += 1
            if begun == commit:
                _ENDS[how](connection)

        sa.event.listen(self.clients[client]._database.engine, 'commit', end)
        # Nothing happened, or all that was answered: an operation has one commit.
        with contextlib.suppress(Died):
            try:
                operation.follow(self.model, operation.ask(self.clients[client]))
            except ConnectionError as error:
                assert how == 'cut' and 'then repeat the command' in str(error)
        self.clients[client] = Ledger.open(self.where)
        self._compare(self.model)
        self._one(client, operation)

    @rule(client=CLIENTS)
    def reopen(self, client: int) -> None:
        """A client ends, and another one begins."""
        self.clients[client] = Ledger.open(self.where)

    @rule(client=CLIENTS, dataset=DATASET, name=NAMES, data=st.data())
    def ask(self, client: int, dataset: str, name: str, data: st.DataObject) -> None:
        """A question is answered as a charge would be, and writes nothing."""
        cost = self.costs[data.draw(st.sampled_from(sorted(self.costs)))]
        question = Operation(
            lambda ledger: ledger.check(dataset, run_id=name, unit='example', cost=cost), lambda *_: None
        )
        answer = question.ask(self.clients[client])
        model = copy.deepcopy(self.model)
        run = model[dataset].run(name) if dataset in model else None
        key, identity = (KEYS[0], IDENTITIES[0]) if run is None else (run.key, run.identity)
        _follow_charge(model, answer, dataset, name, _by_hand(cost), key, identity, 'example')
        self._compare(self.model)

    @rule(
        client=CLIENTS,
        dataset=DATASET,
        name=NAMES,
        kind=st.sampled_from(['reference', 'start', 'adapter']),
        number=st.integers(1, 4),
        forged=st.booleans(),
    )
    def build_on(self, client: int, dataset: str, name: str, kind: str, number: int, forged: bool) -> None:
        """An earlier release may be built on if the ledger holds the charge that it claims, or not at all."""
        run = self.model[dataset].run(name) if dataset in self.model else None
        entry = None if run is None else run.entry
        claimed = number if entry is None or forged else entry.run_number
        price = 0.01 if entry is None else entry.rho
        config = {'dataset': 'visits', 'ledger': self.where, 'output': str(self.folder / 'out')}
        config |= {'input': 'in.jsonl', 'delta': 1e-6, 'epsilon': 0.5, 'aggregate': 'difference'}
        config |= {'accounting': 'worst-case', 'method': 'predict'}
        holds = entry is not None and claimed == entry.run_number
        if kind == 'adapter':
            place = self._write_adapter(dataset, name, claimed)
            holds = holds and run is not None and run.cost == _by_hand(self.costs['adapter'])
        else:
            place = self._write_release(dataset, name, claimed, price)
        question = {
            'reference': lambda ledger: _check_earlier(job_config(**config, reference=place), ledger),
            'adapter': lambda ledger: _check_earlier(job_config(**config, adapter=place), ledger),
            'start': lambda ledger: start_corpus.check_start(place, 'start', 'visits', ledger),
        }[kind]
        # The curator vouches for a dataset that is nobody's here.
        if holds or (dataset not in self.model and dataset != 'visits'):
            question(self.clients[client])
        else:
            with pytest.raises(ValueError, match='whose charge the ledger holds') as refused:
                question(self.clients[client])
            assert repr(name) in str(refused.value) and repr(dataset) in str(refused.value)
        self._compare(self.model)

    def _write_release(self, dataset: str, name: str, number: int, rho: float) -> str:
        place = self.folder / 'release'
        (place / run_files.DATA_FOLDER).mkdir(parents=True, exist_ok=True)
        claim = released_report(name, {'dataset': dataset, 'run_number': number, 'rho': rho})
        (place / run_files.REPORT).write_text(claim)
        return str(place)

    def _write_adapter(self, dataset: str, name: str, number: int) -> str:
        place = self.folder / 'adapter'
        place.mkdir(exist_ok=True)
        card = dataclasses.replace(_known_card(), dataset=dataset, run_id=name, run_number=number)
        (place / run_files.ADAPTER_CARD).write_text(card.to_json())
        return str(place)

    def _compare(self, model: Model) -> None:
        """The ledger holds what the model holds: no charge more, none less, none changed, all in the log."""
        found = {of.dataset.name: of for of in self.watcher.accounts()}
        assert found.keys() == model.keys()
        for name, of in model.items():
            account, stored = found[name], found[name].dataset
            assert (stored.unit, stored.delta, stored.epsilon_budget) == (of.unit, of.delta, of.given_epsilon)
            assert near(stored.rho_budget, of.budget)
            assert stored.failure_budget == (of.failure_budget if of.is_gaussian else None)
            assert near(stored.renyi_order or 0.0, of.order or 0.0)
            # The twin keeps the divergence at the order, and so the largest budget in another way.
            assert near((stored.renyi_order or 1.0) * (stored.rho_bound or 0.0), of.bound or 0.0)
            assert [(run.number, run.run_id, run.state == 'settled') for run in account.runs] == [
                (place, run.name, run.settled) for place, run in enumerate(of.runs, 1)
            ]
            assert [_by_hand(run.cost) for run in account.runs] == [run.cost for run in of.runs]
            assert within(account.rho_spent, of.spent())
            left = max(0.0, stored.rho_budget - account.rho_spent)
            assert math.isclose(account.rho_left, left, rel_tol=1e-9, abs_tol=1e-12)
            for run, expected in zip(account.runs, of.runs, strict=True):
                assert account.entry(run) == expected.entry
            events = self.watcher.events(name)
            assert [(event.kind, event.run_id) for event in events] == of.log
            assert all(event.details['reason'] for event in events if event.kind == 'refused')


_kept: dict[str, Any] = {}


def _known_costs() -> dict[str, RunCost]:
    if 'costs' not in _kept:
        with tempfile.TemporaryDirectory() as folder:
            _kept['costs'] = _costs(pathlib.Path(folder))
    return _kept['costs']


def _known_card() -> AdapterCard:
    """The card of an adapter of the cost `adapter`."""
    if 'card' not in _kept:
        given = {'input': 'in.jsonl', 'output': 'out', 'delta': 1e-6, 'method': 'fine-tune', 'records': 5_000}
        given |= {'noise_multiplier': 2.0, 'tuning_steps': 200, 'expected_batch_size': 100}
        params = methods.solve(job_config(**given)).params
        template = PromptTemplate(private='{examples}', public='Write.', example='{text}', separator='\n')
        _kept['card'] = AdapterCard(
            run_id='run', dataset='visits', run_number=1, model='bundled', weights='w', lora_rank=2,
            factors='f', epsilon=subsampled.epsilon_of_event(params.event, 1e-6),
            epsilon_of_run=subsampled.epsilon_of_event(params.event, 1e-6), delta=1e-6,
            mechanism=params, template=template,
            prompt={
                'label_name': 'label', 'text_name': 'text', 'corpus_description': '', 'max_prompt_tokens': 9,
                'max_example_tokens': 9, 'schema': None,
            },
            labels=(),
        )  # fmt: skip
    return _kept['card']


def _check_earlier(config: JobConfig, ledger: Ledger) -> None:
    charge.check_earlier(methods.solve(config), ledger)


def _by_hand(cost: RunCost) -> oracle.Cost:
    return oracle.Cost.of(cost.to_json_object())


# ------------------------------------------------------------------ the right ledger


@pytest.fixture
def new_place(kind: str, request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Callable[[], str]:
    """Makes a place for a ledger."""
    if kind == 'postgresql':
        return request.getfixturevalue('postgresql')
    # In memory where there is such a folder: a disk would take most of the time, and prove nothing here.
    memory = pathlib.Path('/dev/shm')
    folder = pathlib.Path(tempfile.mkdtemp(dir=memory)) if os.access(memory, os.W_OK) else tmp_path
    request.addfinalizer(functools.partial(shutil.rmtree, folder))
    return lambda: str(folder / f'{uuid.uuid4().hex}.db')


def attack(new_place: Callable[[], str], *, examples: int, steps: int, finds: bool = False) -> None:
    """Runs the machine.

    Args:
        new_place: Makes a place for a ledger.
        examples: Sequences of steps.
        steps: Most of each.
        finds: True if it is to find a fault, of which no shortest example is wanted.
    """
    machine = type('MachineThere', (Machine,), {'new_place': staticmethod(new_place)})
    phases = [Phase.generate] if finds else [Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink]
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples, stateful_step_count=steps, deadline=None, phases=phases,
            suppress_health_check=list(HealthCheck), report_multiple_bugs=False,
            **({'derandomize': True} if finds else {}),
        ),
    )  # fmt: skip


@pytest.mark.first
@pytest.mark.heavy
@pytest.mark.parametrize('kind', ['sqlite'])
def test_a_ledger_of_a_file_is_the_sum_by_hand(new_place: Callable[[], str]) -> None:
    attack(new_place, examples=6, steps=20)


@pytest.mark.first
@pytest.mark.run
@pytest.mark.parametrize('kind', ['postgresql'])
def test_a_ledger_of_a_server_is_the_sum_by_hand(new_place: Callable[[], str]) -> None:
    attack(new_place, examples=2, steps=25)


@pytest.mark.run
@pytest.mark.parametrize('kind', ['sqlite', 'postgresql'])
def test_ten_thousand_steps(new_place: Callable[[], str]) -> None:
    attack(new_place, examples=100, steps=50)


# ------------------------------------------------------------------ broken twins


def answers_before_it_commits(patch: pytest.MonkeyPatch) -> None:
    """A charge is committed with the next one: whoever dies in between has sampled for nothing."""
    real, open_charges = Ledger.reserve, dict[Ledger, dict[str, Any]]()

    def reserve(self: Ledger, dataset: str, **charge_of: Any) -> Any:
        if (waiting := open_charges.pop(self, None)) is not None:
            real(self, **waiting)
        asked = {name: charge_of[name] for name in ('run_id', 'unit', 'cost')}
        entry = self.check(dataset, **asked)
        open_charges[self] = {'dataset': dataset, **charge_of}
        return entry

    patch.setattr(Ledger, 'reserve', reserve)


def commits_twice(patch: pytest.MonkeyPatch) -> None:
    """The log is written in a transaction of its own: a death between both loses a line."""
    real, log, of_thread = Ledger.reserve, ledgers._log, threading.local()

    def keep(connection: sa.Connection, *words: Any, **details: Any) -> None:
        if hasattr(of_thread, 'lines'):
            of_thread.lines.append((words, details))
        else:
            log(connection, *words, **details)

    def reserve(self: Ledger, *arguments: Any, **options: Any) -> Any:
        of_thread.lines = []
        try:
            return real(self, *arguments, **options)
        finally:
            lines = of_thread.__dict__.pop('lines')
            for words, details in lines:
                with self._database.writing() as connection:
                    log(connection, *words, **details)

    patch.setattr(ledgers, '_log', keep)
    patch.setattr(Ledger, 'reserve', reserve)


def forgets_open_charges(patch: pytest.MonkeyPatch) -> None:
    """Only runs that ended are counted."""

    def prices(self: accounts.Account) -> list[float]:
        order = self.dataset.order if self.runs else math.inf
        return [run.cost.curve.rho_at(order) for run in self.runs if run.state == 'settled']

    patch.setattr(accounts.Account, '_prices', property(prices))


def takes_any_key(patch: pytest.MonkeyPatch) -> None:
    """A run is known by its name alone: a second corpus is free."""
    patch.setattr(accounts.Account, 'check_resumption', lambda self, run, asked: self.check_unit(asked.unit))


def lets_the_order_follow(patch: pytest.MonkeyPatch) -> None:
    """The order is that of the budget, also where it was chosen after outputs were seen."""

    whole = budget.Dataset.with_budget

    def with_budget(self: budget.Dataset, **changed: Any) -> budget.Dataset:
        new = whole(self, **changed)
        if self.renyi_order is None:
            return new
        order = accounting.optimal_order(new.rho_budget, new.delta)
        return dataclasses.replace(new, renyi_order=order)

    patch.setattr(budget.Dataset, 'with_budget', with_budget)


def samples_for_free(patch: pytest.MonkeyPatch) -> None:
    """Only the part of a cost that is in zCDP is charged."""
    patch.setattr(accounts.Account, 'price', lambda self, cost: cost.curve.rho)


def fails_for_free(patch: pytest.MonkeyPatch) -> None:
    """Every run of a filter of Gaussians fails as often as the first one."""
    real = accounts.Account._next_failure

    def next_failure(self: accounts.Account, cost: RunCost) -> float | None:
        return real(dataclasses.replace(self, runs=()), cost)

    patch.setattr(accounts.Account, '_next_failure', next_failure)


def says_no_reason(patch: pytest.MonkeyPatch) -> None:
    """The log keeps no reason of a refusal."""
    patch.setattr(ledgers, '_reason', lambda refusal: '')


@pytest.mark.parametrize('kind', ['sqlite'])
@pytest.mark.parametrize(
    'break_it',
    [
        answers_before_it_commits,
        forgets_open_charges,
        commits_twice,
        *(
            pytest.param(twin, marks=pytest.mark.run)
            for twin in (
                takes_any_key,
                lets_the_order_follow,
                samples_for_free,
                fails_for_free,
                says_no_reason,
            )
        ),
    ],
)
def test_a_broken_ledger_is_caught(
    new_place: Callable[[], str], break_it: Callable[[pytest.MonkeyPatch], None]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        break_it(patch)
        # By the sum by hand, or by the ledger itself, which holds charges against its log. Two clients at
        # once need not do the same again: Hypothesis then calls what it found flaky.
        with pytest.raises((AssertionError, ValueError, FlakyFailure)) as caught:
            attack(new_place, examples=200, steps=30, finds=True)
    raised = caught.value
    for found in raised.exceptions if isinstance(raised, FlakyFailure) else [raised]:
        assert isinstance(found, AssertionError) or 'Somebody edited it' in str(found)
