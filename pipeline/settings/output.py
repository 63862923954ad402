"""Settings of the output: the corpus, the curator's folder, and the run's name."""

import dataclasses
import functools
import re

from pipeline.release import apart
from pipeline.settings import panel

_setting = functools.partial(panel.setting, 'Output')
# Bounds of the default number of shards; a batch makes some ten rows.
BATCHES_OF_A_SHARD, MOST_SHARDS = 100, 8
_RUN_ID = re.compile(r'[A-Za-z0-9][A-Za-z0-9._-]{0,99}')


def check_run_id(run_id: str) -> None:
    """Refuses what cannot be the public name of a run."""
    if not _RUN_ID.fullmatch(run_id):
        raise ValueError(
            f'Expected a run id of letters, digits and "._-", got run_id={run_id!r}. '
            'It names folders and is published.'
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Output(panel.Panel):
    """Settings of the output. `output` may be None for `plan`, which writes nothing."""

    output: str | None = _setting(
        'Folder of the corpus and its report. Must be empty or of this run.', None, path='file'
    )
    work_dir: str | None = _setting(
        "Folder of the run key, plan and finished batches; the curator's own. Default: OUTPUT.curator.", None
    )
    run_id: str | None = _setting(
        "Public name of the run. Default: the output folder's name.", None, names_path=False
    )
    shards: int | None = _setting(
        f'Parquet files of the corpus. Default: one for each {BATCHES_OF_A_SHARD} planned batches, '
        f'{MOST_SHARDS} at most.',
        None,
    )

    def check(self) -> None:
        self._check_positive('shards')
        if self.run_id is not None:
            check_run_id(self.run_id)
        for name in ('output', 'work_dir'):
            folder = getattr(self, name)
            if folder and '://' in folder and set(folder) & set('*?[]'):
                # Beam lists a bucket by patterns only, and would look elsewhere for what lies there.
                raise ValueError(
                    f'Expected a URL without *, ?, [ and ], got {name}={folder!r}. Choose another folder.'
                )
        if self.output:
            # The default as well: of `.` it would be a folder below.
            apart.check_outside(self.output, 'work_dir', self.curator, [self.curator])

    @property
    def curator(self) -> str:
        return self.work_dir or f'{str(self.output).rstrip("/")}.curator'

    @property
    def name(self) -> str:
        return self.run_id or re.sub(r'[^A-Za-z0-9._-]', '-', str(self.output).rstrip('/').split('/')[-1])
