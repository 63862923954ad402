"""The two folders of a run: made, or checked to be this run's."""

import contextlib
import fcntl
import json
import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence

from apache_beam.io.filesystems import FileSystems

from models.privacy import intact
from models.privacy.randomness import RunKey
from pipeline.methods.solved import Run
from pipeline.release import apart
from pipeline.run import identity
from transforms.durable import (
    TEMPORARY_SUFFIX,
    is_empty,
    is_local,
    make_folder,
    read_file,
    write_file,
    write_key,
)
from transforms.places import DATASET, sqlite_file
from transforms.run_files import (
    BATCHES_FOLDER,
    CONFIG,
    DATA_FOLDER,
    PLAN,
    REPORT,
    RUN,
    RUN_KEY,
    WORK_FOLDERS,
)


def prepare(run: Run) -> list[str]:
    """Makes the run's folders, key and records of itself, or checks that they are this run's.

    Returns:
        The input files that the run's digest is of.

    Raises:
        FileExistsError: A folder holds something else, or a run of other settings, input,
            model or code: which of them, the error says.
        FileNotFoundError: Finished batches without the key or the plan that they follow.
        ValueError: A folder that is published holds something that is the curator's alone.
    """
    work_dir, output, folders = run.work_dir, run.output, run.folders
    files = identity.input_files(run)
    _check_apart(run, files)
    digests = identity.fingerprint(run, files)
    _refuse_other_files(run)
    make_folder(work_dir, private=True)
    write_file(FileSystems.join(work_dir, RUN), (json.dumps(digests, indent=2) + '\n').encode())
    _refuse_change(run, digests)
    for name in (*WORK_FOLDERS, *folders.work):
        make_folder(FileSystems.join(work_dir, name))
    for name in ((DATA_FOLDER,) if run.method.writes_texts else ()) + tuple(folders.output):
        _refuse_link(f'{output}/{name}')
        make_folder(f'{output}/{name}')
    begun = (BATCHES_FOLDER, *folders.work)
    if any(
        not is_empty(FileSystems.join(work_dir, name), besides=(f'*{TEMPORARY_SUFFIX}',)) for name in begun
    ):
        for name in (RUN_KEY, PLAN, *folders.kept):
            if not FileSystems.exists(FileSystems.join(work_dir, name)):
                # Another key or plan would deal the records out anew: some would vote twice.
                raise FileNotFoundError(
                    f'Expected the key and the plan beside what is finished, got no {name} in {work_dir!r}. '
                    'Restore it, or start a new run, which spends its budget anew.'
                )
    write_key(work_dir, RunKey.new())
    write_file(FileSystems.join(work_dir, CONFIG), run.config.to_toml().encode())
    if (plan := run.batch_plan) is not None:
        # For the curator and the progress display; the graph takes it from the config.
        write_file(FileSystems.join(work_dir, PLAN), plan.to_json().encode())
    return files


def _check_apart(run: Run, files: Sequence[str]) -> None:
    """Refuses a place of the curator's in a folder that is published, wherever links lead."""
    output, work_dir = run.output, run.work_dir
    names = (*WORK_FOLDERS, *run.folders.work)
    places = [work_dir, *(FileSystems.join(work_dir, name) for name in names)]
    apart.check_outside(output, 'work_dir', work_dir, places)
    if is_local(work_dir):
        apart.check_work_dir(work_dir)
    records = [sqlite_file(file) or file.removeprefix(DATASET) for file in files]
    apart.check_outside(output, 'input', str(run.input.input), records)
    if run.budget.ledger is not None:
        apart.check_outside(output, 'ledger', run.budget.ledger, [run.budget.ledger])
    if (compiled := run.runner.compiled_folder) is not None:
        apart.check_outside(output, 'compilation_cache', compiled, [compiled])


def _refuse_link(folder: str) -> None:
    """Refuses a folder of the release that lies elsewhere."""
    if is_local(folder) and os.path.islink(folder):
        raise FileExistsError(
            f'Expected a folder of the release, got output folder={folder!r}, a symbolic link, which no run '
            'makes: the texts would lie elsewhere. Find out who put it there, remove it, and repeat the '
            'command.'
        )


def check(run: Run) -> None:
    """Refuses folders that `prepare` would refuse, for whoever wants to know before a model is loaded.

    Raises:
        As `prepare` does.
    """
    files = identity.input_files(run)
    _check_apart(run, files)
    _refuse_other_files(run)
    if FileSystems.exists(FileSystems.join(run.work_dir, RUN)):
        _refuse_change(run, identity.fingerprint(run, files))


def _refuse_other_files(run: Run) -> None:
    for place, option in ((run.work_dir, 'work_dir'), (run.output, 'output')):
        # Looked at in this order: another launcher of this run may have begun in between.
        if not is_empty(place, besides=(f'{RUN}*',)) and not FileSystems.exists(
            FileSystems.join(run.work_dir, RUN)
        ):
            raise FileExistsError(
                f"Expected an empty folder or this run's, got {option}={place!r}, which holds other files. "
                f'Choose another --{option.replace("_", "-")}.'
            )


@contextlib.contextmanager
def alone(run: Run) -> Iterator[None]:
    """Keeps a second command on this machine from doing the same run beside this one.

    Nothing would be lost: both would draw the same. A killed command lets go at once, and a folder that is
    not of this machine, or of a filesystem without locks, is nobody's alone.

    Raises:
        FileExistsError: Another command does the run.
    """
    if not is_local(run.work_dir):
        yield
        return
    make_folder(run.work_dir, private=True)
    folder = os.open(run.work_dir, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FileExistsError(
                'Expected one command for this run, got another one that is at work in '
                f'work_dir={run.work_dir!r}. Wait for its end, or stop it and repeat this command, which '
                'goes on where it was.'
            ) from None
        except OSError:
            pass
        yield
    finally:
        os.close(folder)


def _refuse_change(run: Run, digests: Mapping[str, str]) -> None:
    work_dir = run.work_dir
    with intact.reading(f'{RUN} of work_dir={work_dir!r}', 'Restore it, or start another run'):
        begun = dict(json.loads(read_file(FileSystems.join(work_dir, RUN))))
    changed = sorted(name for name, digest in digests.items() if begun.get(name) != digest)
    if not changed:
        return
    said = ' '.join(identity.CHANGES[name] for name in changed)
    if 'config' in changed:
        said += _settings_then_and_now(run)
    raise FileExistsError(
        f'Expected to resume the run of work_dir={work_dir!r}, got changed={changed}. '
        f'{said} Repeat that run exactly to resume it, '
        'or start another with another --output (and --work-dir), which pays its own price.'
    )


def _settings_then_and_now(run: Run) -> str:
    """Settings that differ, with both values, all of them public; nothing where none were kept."""
    path = FileSystems.join(run.work_dir, CONFIG)
    if not FileSystems.exists(path):
        return ''
    then, now = (tomllib.loads(text) for text in (read_file(path).decode(), run.config.to_toml()))
    differing = (
        f'--{name.replace("_", "-")} was {then.get(name)!r} and is {now.get(name)!r}'
        for name in sorted({*then, *now} - identity.MAY_CHANGE)
        if then.get(name) != now.get(name)
    )
    return ''.join(f' {words}.' for words in differing)


def is_finished(run: Run) -> bool:
    """True if the run's report is there, which is written last."""
    return FileSystems.exists(FileSystems.join(run.output, REPORT))
