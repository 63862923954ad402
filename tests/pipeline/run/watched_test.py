import json
import pathlib
from typing import Any

import pytest

from pipeline import methods
from pipeline.asked.config import job_config
from pipeline.ledger.budget import BudgetExceeded
from pipeline.ledger.ledger import Ledger
from pipeline.methods.solved import Run
from pipeline.run import folders, watched
from pipeline.screen import terminal


def a_run(folder: pathlib.Path, **changes: Any) -> Run:
    records = folder / 'in.jsonl'
    records.write_text(''.join(json.dumps({'text': f'Text {n}.'}) + '\n' for n in range(20)))
    settings: dict[str, Any] = {
        'input': str(records), 'output': str(folder / 'out'), 'epsilon': 1.0, 'delta': 1e-6,
        'batches_per_label': 1,
    }  # fmt: skip
    return methods.solve(job_config(**settings | changes), launch=True)


def test_folders_and_the_ledger_refuse_before_a_model_is_loaded(
    tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ledger = str(tmp_path / 'ledger.sqlite')
    Ledger.create(ledger).add_dataset('notes', unit='example', epsilon=0.5, delta=1e-6)
    with pytest.raises(BudgetExceeded):
        watched.carry_out(a_run(tmp_path, dataset='notes', ledger=ledger), [], terminal.console(stderr=True))
    assert not (tmp_path / 'out').exists() and not (tmp_path / 'out.curator').exists()
    (tmp_path / 'out').mkdir()
    (tmp_path / 'out' / 'mine').touch()
    with pytest.raises(FileExistsError, match='which holds other files'):
        watched.carry_out(a_run(tmp_path), [], terminal.console(stderr=True))
    said = capfd.readouterr().err
    assert 'ε = 0.999998 at' in said and 'Loading the model' not in said


def test_a_second_command_is_told_that_the_run_is_at_work(tmp_path: pathlib.Path) -> None:
    run = a_run(tmp_path)
    for _ in range(2):
        with (
            folders.alone(run),
            pytest.raises(FileExistsError, match='another one that is at work in work_dir='),
            folders.alone(run),
        ):
            pytest.fail('two at once')
    # Nothing is left behind that a run would take for another's.
    assert not list((tmp_path / 'out.curator').iterdir())
