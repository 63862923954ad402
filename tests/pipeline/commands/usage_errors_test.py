"""Errors of a request come before any heavy library is loaded, whose import takes seconds."""

import json
import subprocess
import sys

import pytest

CHEAP = ('--delta', '1e-6', '--aggregate', 'mean', '--max-private-tokens', '8')
CENTERS = ('centers', '--input', 'x.jsonl', '--output', 'o')
# Modules that take seconds to import; and modules that they take along.
HEAVY = ('jax', 'tensorflow', 'tensorflow_text', 'apache_beam', 'gemma', 'sklearn', 'sqlalchemy', 'pandas')
ERRORS = {
    ('plan', '--delta', '1e-6'): 'Expected either epsilon or context_budget',
    ('plan', *CHEAP, '--batch-szie', '3'): 'No such option',
    ('plan', *CHEAP, '--method', 'tuning'): "'tuning' is not",
    ('generate', *CHEAP): 'Give --input FILES --output FOLDER',
    ('generate', *CHEAP, '--input', 'none.jsonl', '--output', 'o'): "got none for pattern='none.jsonl'",
    ('generate', *CHEAP, '--input', 'x.jsonl', '--output', 'o', '--aggregate', 'mode'): "'mode' is not",
    (
        'generate',
        *CHEAP,
        '--input',
        'x.jsonl',
        '--output',
        'o',
        '--runner',
        'PrismRunner',
    ): 'give FnApiRunner',
    ('generate', *CHEAP, '--input', 'a,b.jsonl', '--output', 'o'): "comma in input='a,b.jsonl' separates two",
    ('report', 'no-such-folder'): 'Give the folder that --output named',
    ('audit', 'canaries', *CHEAP, '--result', 'a.txt'): 'ending in .html or .json',
    ('audit', 'canaries', *CHEAP, '--result', 'no/such/folder/a.json'): 'which is not there',
    ('audit', 'canaries', *CHEAP, '--canaries', '9'): 'Expected canaries >= 64',
    (*CENTERS, '--dtype', 'bfloat16'): "embedder='decoder'",
    (*CENTERS, '--delimiter', ';'): 'Expected delimiter with CSV files',
    ('check', '--input', 'x.parquet', '--encoding', 'utf-16'): 'Expected encoding with files of text',
    ('split', '--input', 'x.jsonl', '--output', 'o', '--quoting', 'none'): 'Expected quoting with CSV files',
    ('start', 'x.jsonl', '--yes', '--delimiter', ';'): 'Expected delimiter with CSV files',
    ('evaluate', 'x.jsonl', '--quoting', 'none'): 'Expected quoting with CSV files',
    ('check', '--input', 'x.csv', '--json', '--show-rejected', '1'): 'Expected a screen for rejected rows',
    ('schema', 'poem'): 'Expected the name of a document',
    ('ledger', 'show'): "Missing option '--ledger'",
    ('no-such-command',): 'No such command',
}
PROGRAM = """
import json, sys
from pipeline import main
said = []
for arguments in json.loads(sys.argv[1]):
    try:
        main.app(arguments, standalone_mode=False)
        said.append('no error')
    except Exception as error:
        said.append(getattr(error, 'format_message', lambda: str(error))())
print(json.dumps({'said': said, 'modules': list(sys.modules)}))
"""


@pytest.mark.run
def test_no_error_of_a_request_waits_for_a_heavy_library() -> None:
    arguments = json.dumps([list(each) for each in ERRORS])
    done = subprocess.run([sys.executable, '-c', PROGRAM, arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    for (request, expected), said in zip(ERRORS.items(), found['said'], strict=True):
        assert expected in said, (request, said)
    loaded = {name.split('.')[0] for name in found['modules']}
    assert 'typer' in loaded and loaded.isdisjoint(HEAVY), loaded & set(HEAVY)
