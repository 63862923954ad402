"""The public part of an error that ended a run: all of an engine's own, nothing that quotes a record."""

import pathlib

import grpc
import pytest

from pipeline import methods
from pipeline.asked.config import job_config
from pipeline.methods.solved import Run
from pipeline.run.failure import keep_failure
from tests.launched import launch
from tests.samples import needs_model, write_rows

SECRET = 'opensesame'
ENGINES = ('FlinkRunner', 'PortableRunner', 'DataflowRunner')


def run_of(folder: pathlib.Path, runner: str, **settings: object) -> Run:
    config = job_config(delta=1e-3, epsilon=8, runner=runner, output=str(folder / 'out'), **settings)
    return methods.solve(config)


@pytest.fixture
def errors(tmp_path: pathlib.Path) -> pathlib.Path:
    """The folder in which a run keeps them."""
    folder = tmp_path / 'out.curator' / 'errors'
    folder.mkdir(parents=True)
    return folder


class Broken(grpc.RpcError, grpc.Call):
    """An error of a call, with a text that nobody may read."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    def __str__(self) -> str:
        return SECRET


Broken.__abstractmethods__ = frozenset()  # the rest of a call is nobody's concern here


@pytest.mark.parametrize('runner', ENGINES)
def test_an_error_before_the_engine_has_the_job_is_shown(
    tmp_path: pathlib.Path, errors: pathlib.Path, runner: str
) -> None:
    error = FileNotFoundError(2, 'No such file or directory', 'java')
    said = keep_failure(run_of(tmp_path, runner), error, (), submitted=False)
    assert f"runner='{runner}', error=FileNotFoundError: [Errno 2] No such file or directory: 'java'" in said
    assert 'No step has begun' in said and 'step=None' not in said
    (file,) = errors.iterdir()
    assert 'No such file' in file.read_text() and file.name in said
    assert 'FutureTimeoutError: no text' in keep_failure(
        run_of(tmp_path, runner), grpc.FutureTimeoutError(), (), submitted=False
    )


@pytest.mark.parametrize(
    ('runner', 'submitted'), [*((runner, True) for runner in ENGINES), ('FnApiRunner', False)]
)
@pytest.mark.parametrize(
    'text',
    [
        SECRET,
        f'Pipeline job failed in state FAILED: java.lang.RuntimeException: worker: {SECRET}',
        f'Pipeline job failed in state FAILED: worker: java.net.ConnectException: {SECRET}',
        f'{SECRET} java.net.ConnectException: Connection refused',
        f"{SECRET} [while running 'Read/ReadPieces']",
    ],
)
def test_an_error_that_may_be_of_a_step_is_not(
    tmp_path: pathlib.Path, errors: pathlib.Path, runner: str, submitted: bool, text: str
) -> None:
    said = keep_failure(
        run_of(tmp_path, runner), RuntimeError(text), ('Read/ReadPieces',), submitted=submitted
    )
    (file,) = errors.iterdir()
    assert SECRET not in said and 'may quote records' in said and SECRET in file.read_text()
    assert "step='Read/ReadPieces'" in said or 'no step that is known' in said


@pytest.mark.parametrize(
    ('error', 'shown'),
    [
        (
            RuntimeError(
                'Pipeline j-1 failed in state FAILED: java.net.ConnectException: Connection refused'
            ),
            'java.net.ConnectException: Connection refused. See that it answers',
        ),
        (
            RuntimeError(f'Pipeline j failed in state FAILED: java.net.UnknownHostException: {SECRET}'),
            'java.net.UnknownHostException. See',
        ),
        (Broken(), 'UNAVAILABLE. See'),
    ],
)
@pytest.mark.usefixtures('errors')
def test_of_an_engine_that_is_lost_a_word_is_shown_and_not_its_text(
    tmp_path: pathlib.Path, error: Exception, shown: str
) -> None:
    said = keep_failure(run_of(tmp_path, 'FlinkRunner'), error, (), submitted=True)
    assert f'an error of the engine, {shown}' in said and SECRET not in said


@needs_model
@pytest.mark.run
@pytest.mark.parametrize(
    ('runner', 'arguments', 'error'),
    [
        ('PortableRunner', ('--job_endpoint=localhost:1', '--job_server_timeout=1'), 'FutureTimeoutError'),
        ('FlinkRunner', ('--flink_job_server_jar=/no/such.jar',), 'ValueError: Unable to parse jar URL'),
        (
            'FlinkRunner',
            ('--flink_job_server_jar=none.jar', '--job_server_java_launcher=/no/java'),
            "No such file or directory: '/no/java'",
        ),
        ('FlinkRunner', ('--flink_submit_uber_jar', '--flink_version=2.0'), 'Connection refused'),
    ],
    ids=('no job server', 'no jar', 'no Java', 'no cluster'),
)
def test_an_engine_that_is_not_there_is_told(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    runner: str,
    arguments: tuple[str, ...],
    error: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'none.jar').touch()
    rows = ({'text': f'{number} times {SECRET}'} for number in range(20))
    run = run_of(
        tmp_path, runner, input=write_rows(tmp_path / 'in.jsonl', rows), records=20, aggregate='mean',
        batch_size=8, batches_per_label=1, max_prompt_tokens=64, max_example_tokens=4,
    )  # fmt: skip
    engine = ('--environment_type=EXTERNAL', '--environment_config=localhost:2', '--flink_master=localhost:1')
    with pytest.raises(RuntimeError, match='Expected the engine to take the job') as caught:
        launch(run.config, [*engine, *arguments])
    assert error in str(caught.value) and 'No step has begun' in str(caught.value)
    assert SECRET not in str(caught.value) and 'step=' not in str(caught.value)
