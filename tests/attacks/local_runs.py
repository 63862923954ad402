"""Runs with the tiny model, one after another in one process.

    echo '[[{"method": "evolve", ...}, ["--direct_num_workers=2"]]]' | python -m tests.attacks.local_runs

takes settings and Beam's options of each, and prints what each failed with, or null. With the argument `open`
a run does what Beam would, as if nothing of it were refused or mended.
"""

import contextlib
import functools
import json
import sys

from models.sampling import loading
from pipeline.asked.config import job_config
from pipeline.run import beam_options, staging
from tests import beam_looks
from tests.launched import launch
from tests.models.finetuning import tiny
from transforms.evolve import sample


def main() -> None:
    """See above."""
    if sys.argv[1:] == ['open']:
        beam_options._RUNNERS.clear()
        beam_options._refuse_open_ports = lambda *_: None
        staging.within_this_user = lambda _: contextlib.nullcontext()
    beam_looks.remember()
    sample.load_source = functools.lru_cache(loading.load_source)  # and compiled once
    failures = []
    with tiny.known(), contextlib.redirect_stdout(sys.stderr):
        for settings, options in json.load(sys.stdin):
            try:
                launch(job_config(**settings), options)
            except (RuntimeError, ValueError) as error:
                failures.append(str(error))
            else:
                failures.append(None)
    print(json.dumps(failures))


if __name__ == '__main__':
    main()
