"""A work directory is restored from a copy that was made before a draw, and the run is started again.

If the noise were other noise, two releases of one table would be out for one price, and many of them would
average to the true table. It follows from the run key and the table instead, so a repetition shows nothing
new. In each test an open twin, whose noise is the operating system's, is told from it.
"""

import functools
import pathlib
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from models.finetuning import label_mix
from models.privacy.randomness import RunKey
from models.sampling import loading
from pipeline.ledger.ledger import Ledger
from pipeline.run import charge
from pipeline.settings.job_config import JobConfig
from tests.launched import launch
from tests.models.finetuning import tiny
from tests.pipeline import evolve_run_test
from tests.samples import LABELS, write_rows
from tests.transforms.samples import make_work_dir
from transforms import run_files
from transforms.cluster import draw_clustering
from transforms.condition import draw_conditions
from transforms.evolve import sample
from transforms.plan import draw_plan, draw_plan_of


@pytest.fixture
def open_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise as it was once: of a key that nobody keeps, as good as the operating system's."""
    stream = RunKey.stream
    monkeypatch.setattr(RunKey, 'stream', lambda _, *name: stream(RunKey.new(), *name))


# --- Counts ----------------------------------------------------------------------

# Scale 1e6: a draw comes again by chance with odds below 1e-6.
RHO = 5e-13
CELLS = (('"F"',), ('"M"',))
DRAWS: dict[str, Callable[[str], Any]] = {
    'plan': lambda work_dir: draw_plan([20, 30], work_dir, labels=LABELS, rho=RHO, contexts_per_batch=4),
    'label mix': lambda work_dir: draw_plan_of(
        [20, 30], work_dir, labels=LABELS, rho=RHO,
        batches_of=functools.partial(label_mix.batches_of_counts, texts=30, together=4),
    ),
    'clustering': lambda work_dir: draw_clustering(
        [9, 8, 7, 1, 2, 3], work_dir, labels=LABELS, centers=3, kept=2, rho=RHO
    ),
    'conditions': lambda work_dir: draw_conditions(
        [9, 8, 7, 1], work_dir, fields=('sex',), cells=CELLS, labels=LABELS, rho=RHO
    ),
}  # fmt: skip


def counts_again(folder: pathlib.Path, draw: Callable[[str], Any]) -> tuple[Any, Any]:
    """The draws in a work directory, and in a copy of it that was made before."""
    make_work_dir(folder / 'work')
    shutil.copytree(folder / 'work', folder / 'copy')
    return tuple(draw(str(folder / name)).noisy_counts for name in ('work', 'copy'))


@pytest.mark.parametrize('name', DRAWS)
def test_a_copy_from_before_the_counts_draws_the_same(tmp_path: pathlib.Path, name: str) -> None:
    first, again = counts_again(tmp_path, DRAWS[name])
    assert first == again


@pytest.mark.parametrize('name', DRAWS)
@pytest.mark.usefixtures('open_twin')
def test_counts_of_the_operating_system_are_told(tmp_path: pathlib.Path, name: str) -> None:
    first, again = counts_again(tmp_path, DRAWS[name])
    assert first != again


def test_no_two_releases_of_a_run_share_their_noise(tmp_path: pathlib.Path) -> None:
    """Equal counts under one key: equal noise would show that they are equal."""
    work_dir = make_work_dir(tmp_path / 'work')
    counts = [7, 7, 7, 7]
    settings: dict[str, Any] = {'labels': LABELS, 'rho': RHO}
    clustering = draw_clustering(counts, work_dir, centers=2, kept=2, **settings)
    conditions = draw_conditions(counts, work_dir, fields=('sex',), cells=CELLS, **settings)
    plan = draw_plan(counts, work_dir, contexts_per_batch=4, clustering=clustering, **settings)
    assert plan.noisy_counts is not None
    tables = [
        tuple(noisy for row in clustering.noisy_counts for noisy in row),
        tuple(noisy for row in conditions.noisy_counts for noisy in row),
        plan.noisy_counts,
    ]
    assert all(len(set(drawn)) == 3 for drawn in zip(*tables, strict=True))


# --- Votes -----------------------------------------------------------------------

# Files that two rounds write to a work directory, in the order of a run. A copy has some of the first.
WRITTEN = ('candidates-01', 'votes-01', 'candidates-02', 'votes-02')
ALWAYS = {run_files.RUN_KEY, run_files.RUN, run_files.CONFIG, run_files.PLAN}


@pytest.fixture(autouse=True, scope='module')
def _tiny() -> Iterator[None]:
    """The tiny family; its model is loaded and compiled once for all runs. No run comes to be settled."""
    with tiny.known(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sample, 'load_source', functools.lru_cache(loading.load_source))
        patch.setattr(charge, 'settle', lambda *_: None)
        yield


@pytest.fixture(
    scope='module',
    params=[pytest.param('ledger', id='with a ledger'), pytest.param(None, id='without a ledger')],
)
def finished(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[JobConfig, pathlib.Path]:
    """A finished run of two rounds, and its folder."""
    folder = tmp_path_factory.mktemp('votes')
    write_rows(folder / 'in.jsonl', evolve_run_test.ROWS)
    if request.param is None:
        run = evolve_run_test.config(folder, run_id='votes')
    else:
        evolve_run_test.open_ledger(folder)
        run = evolve_run_test.charged(folder, run_id='votes')
    launch(run, [])
    return run, folder


def votes_again(run: JobConfig, folder: pathlib.Path, written: int) -> tuple[dict[str, bytes], ...]:
    """The release of a run at first, and once its work directory is a copy that has so much of the rounds."""
    work_dir, released = folder / 'out.curator', folder / 'out'
    first = evolve_run_test.contents(released)
    for path in work_dir.rglob('*'):
        is_early = path.parent.name == run_files.ROUNDS_FOLDER and path.stem in WRITTEN[:written]
        if path.is_file() and not is_early and path.name not in ALWAYS:
            path.unlink()
    shutil.rmtree(released)
    launch(run, [])
    return first, evolve_run_test.contents(released)


@pytest.mark.run
@pytest.mark.parametrize('written', range(len(WRITTEN) + 1))
def test_a_copy_from_any_moment_of_the_rounds_releases_the_same(
    finished: tuple[JobConfig, pathlib.Path], written: int
) -> None:
    run, folder = finished
    first, again = votes_again(run, folder, written)
    assert 'rounds/votes-02.json' in first and 'privacy_report.json' in first
    assert again == first
    if run.budget.ledger is not None:
        (charged,) = Ledger.open(str(folder / 'ledger.db')).account('mail').runs
        assert charged.state == 'reserved'


@pytest.mark.run
@pytest.mark.usefixtures('open_twin')
@pytest.mark.parametrize('written', [1, 3])
def test_votes_of_the_operating_system_are_told(
    finished: tuple[JobConfig, pathlib.Path], written: int
) -> None:
    first, again = votes_again(*finished, written)
    # The list is the same, and so are the votes: their noise is not.
    assert first[f'rounds/{WRITTEN[written - 1]}.json'] == again[f'rounds/{WRITTEN[written - 1]}.json']
    assert first[f'rounds/{WRITTEN[written]}.json'] != again[f'rounds/{WRITTEN[written]}.json']
