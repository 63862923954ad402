"""dp-corpus every night on Dataflow or Flink, for as long as the records' budget allows.

The settings are those of a TOML file for `dp-corpus generate --config`: DP_CORPUS_CONFIG
names it, or it lies beside this file as dp_corpus.toml. Every run of the schedule releases
another corpus of the same records, so the ledger decides whether it may: a run that would
pass the budget is skipped, and the log of its first task says so.

This file imports Airflow alone. dp-corpus lives in an environment of its own, and the
Airflow variable dp_corpus_command says where (launch/airflow/README.md).
"""

import datetime
import os
import pathlib
import re
import shlex
import tomllib
from collections.abc import Mapping
from typing import Any

from airflow.providers.google.cloud.operators.dataflow import DataflowStartFlexTemplateOperator
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, Param, task

DAG_ID = 'dp_corpus'
# Connection whose password the ledger's database wants; libpq reads it from the environment.
LEDGER_CONNECTION = 'dp_corpus_ledger'
EXIT_BUDGET = 3  # pipeline/commands/exit_codes.py: the budget does not allow the run
CONFIG = pathlib.Path(os.environ.get('DP_CORPUS_CONFIG', pathlib.Path(__file__).parent / 'dp_corpus.toml'))
# The fields of pipeline/config's JobConfig: keys of the TOML file, flags of the command
# line, parameters of the Flex Template.
PARAMETERS = (
    'input',
    'delimiter',
    'encoding',
    'text_field',
    'label_field',
    'labels',
    'attributes',
    'unit_field',
    'record_id_field',
    'records',
    'sample_rate',
    'max_record_bytes',
    'keep_rejected',
    'method',
    'unit',
    'examples_per_context',
    'epsilon',
    'delta',
    'batch_size',
    'clip_bound',
    'temperature',
    'threshold',
    'threshold_noise_scale',
    'max_private_tokens',
    'accounting',
    'context_budget',
    'omega',
    'shift_bound',
    'batches_per_label',
    'count_rho',
    'aggregate',
    'clusters',
    'clustering_rho',
    'condition_rho',
    'centers',
    'embedder',
    'reference',
    'reference_label_field',
    'reference_size',
    'reference_rounds',
    'dataset',
    'ledger',
    'prompt',
    'label_name',
    'text_name',
    'corpus_description',
    'schema',
    'json_schema',
    'regex',
    'grammar',
    'fixed',
    'condition_on',
    'close_truncated',
    'public_temperature',
    'public_top_k',
    'max_prompt_tokens',
    'max_example_tokens',
    'max_batch_tokens',
    'tuning_steps',
    'expected_batch_size',
    'clip_norm',
    'noise_multiplier',
    'lora_rank',
    'full',
    'learning_rate',
    'mismatch_weight',
    'wrong_prompts',
    'examples_per_label',
    'label_mix',
    'label_mix_rho',
    'top_p',
    'top_k',
    'adapter',
    'model',
    'checkpoint',
    'tokenizer',
    'dtype',
    'micro_batch_size',
    'output',
    'work_dir',
    'run_id',
    'shards',
    'runner',
    'accelerator',
)
# What every job on Dataflow needs (launch/dataflow/profiles.py): one owner of one accelerator, and workers
# that find everything in their image.
EXPERIMENTS = ('no_use_multiple_sdk_containers',)
OPTIONS = ('sdk_location=container', 'no_save_main_session=true', 'number_of_worker_harness_threads=1')
# What the trigger form may change; every other setting is the TOML file's, and so is one that is new.
# Whoever may trigger a run may choose what it generates, not whose records, which budget or which
# files: a file of records that stood in the public prompt would be written out for free.
FREE = (
    'text_field',
    'label_field',
    'labels',
    'attributes',
    'record_id_field',
    'records',
    'sample_rate',
    'max_record_bytes',
    'keep_rejected',
    'method',
    'examples_per_context',
    'epsilon',
    'delta',
    'batch_size',
    'clip_bound',
    'temperature',
    'threshold',
    'threshold_noise_scale',
    'max_private_tokens',
    'accounting',
    'context_budget',
    'omega',
    'shift_bound',
    'batches_per_label',
    'count_rho',
    'aggregate',
    'clusters',
    'clustering_rho',
    'condition_rho',
    'label_name',
    'text_name',
    'corpus_description',
    'public_temperature',
    'public_top_k',
    'max_prompt_tokens',
    'max_example_tokens',
    'max_batch_tokens',
    'tuning_steps',
    'expected_batch_size',
    'clip_norm',
    'noise_multiplier',
    'lora_rank',
    'full',
    'learning_rate',
    'mismatch_weight',
    'wrong_prompts',
    'examples_per_label',
    'label_mix',
    'label_mix_rho',
    'top_p',
    'top_k',
    'dtype',
    'micro_batch_size',
    'run_id',
    'shards',
)
# Settings that take a name or a path: the form offers the names alone. A path that stands in the TOML
# file stays.
CHOICES = {
    'prompt': (
        None,  # the preset of the form that the model was trained on
        'document',
        'pretrained',
        'pretrained-json',
        'instruction',
        'instruction-pairs',
        'instruction-phrase',
        'instruction-json',
    ),
    'embedder': (None, 'tfidf', 'minilm', 'decoder'),  # None: none without clusters, tfidf with them
}


def read_settings(path: pathlib.Path) -> dict[str, Any]:
    """The TOML file's settings, None for those that it leaves out.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: An unknown key, one that a schedule needs is missing, or a label has a comma.
    """
    if not path.is_file():
        raise FileNotFoundError(
            f'Expected the settings of the run, got config={str(path)!r}, which is not there. '
            'Put a dp_corpus.toml beside the DAG, or name one with DP_CORPUS_CONFIG.'
        )
    entries = tomllib.loads(path.read_text(encoding='utf-8'))
    if unknown := sorted(set(entries) - set(PARAMETERS)):
        raise ValueError(
            f'Expected only known keys in config={str(path)!r}, got keys={unknown}. '
            'See dp-corpus generate --help for the keys.'
        )
    if missing := [name for name in ('input', 'output', 'dataset', 'ledger') if not entries.get(name)]:
        raise ValueError(
            f'Expected a schedule to have its records, output and budget, got config={str(path)!r} without '
            f'keys={missing}. Each night spends budget on the same records: only a ledger can stop it.'
        )
    if split := [label for label in entries.get('labels', []) if ',' in label]:
        raise ValueError(
            f'Expected labels without commas, got labels={split} in config={str(path)!r}. '
            'Flags and templates separate labels by commas: call them something else.'
        )
    return {name: entries.get(name) for name in PARAMETERS}


def may_be(name: str, value: Any) -> bool:
    """Whether the trigger form may give a setting this value."""
    if name in CHOICES:
        return SETTINGS[name] in CHOICES[name] and value in CHOICES[name]
    return name in FREE


def form_field(name: str, value: Any) -> Param:
    """The parameter of one setting in the trigger form."""
    if not may_be(name, value):
        return Param(value, const=value)
    if name in CHOICES:
        return Param(value, enum=list(CHOICES[name]))
    kinds = {bool: 'boolean', int: 'number', float: 'number', list: 'array'}
    return Param(value, type=['null', kinds.get(type(value), 'string')])


def run_name(params: Mapping[str, Any], dag_run: Any) -> str:
    """The run id: the same for every attempt at one logical date, so that a retry resumes."""
    moment = dag_run.logical_date or dag_run.run_after  # a run by hand may have no logical date
    return f'{params["run_id"] or DAG_ID}-{moment.astimezone(datetime.UTC):%Y%m%dT%H%M%S}'


def settings(params: Mapping[str, Any], dag_run: Any) -> dict[str, Any]:
    """What one run is given: the parameters, with names and folders of its own."""
    run_id = run_name(params, dag_run)
    # The form refuses another value already; here it would have no effect either.
    chosen = {name: params[name] if may_be(name, params[name]) else SETTINGS[name] for name in PARAMETERS}
    given = {name: value for name, value in chosen.items() if value not in (None, '', [])}
    given |= {name: f'{given[name].rstrip("/")}/{run_id}' for name in ('output', 'work_dir') if name in given}
    return given | {'run_id': run_id}


def flags(params: Mapping[str, Any], dag_run: Any, **fixed: str) -> str:
    """The settings as flags of the command line, quoted for the shell."""
    words = []
    for name, value in (settings(params, dag_run) | fixed).items():
        flag = name.replace('_', '-')
        if isinstance(value, bool):
            words.append(f'--{flag}' if value else f'--no-{flag}')
        else:
            words.append(f'--{flag}={as_text(value)}')
    return shlex.join(words)


def beam_options(options: Mapping[str, Any]) -> str:
    """Beam's options, quoted for the shell; true stands for a bare flag."""
    return shlex.join(
        f'--{name}' if value is True else f'--{name}={value}' for name, value in options.items()
    )


def as_text(value: Any) -> str:
    """A setting as the command line and the template write it."""
    if isinstance(value, bool):
        return str(value).lower()
    return ','.join(value) if isinstance(value, list) else str(value)


def launch_request(context: Mapping[str, Any], jinja_env: Any) -> dict[str, Any]:
    """The Flex Template's launch request. The engine is Dataflow already, so `runner` is left out."""
    params, dag_run = context['params'], context['dag_run']
    dataflow = context['var']['json'].dp_corpus_dataflow
    environment = dataflow['environment']
    given = settings(params, dag_run)
    given.pop('runner', None)
    return {
        'launchParameter': {
            # The same name for a retry: Dataflow refuses it while the first attempt still runs.
            'jobName': re.sub(r'[^a-z0-9-]', '-', given['run_id'].lower()),
            'containerSpecGcsPath': dataflow['template'],
            'parameters': {name: as_text(value) for name, value in given.items()},
            'environment': environment
            | {
                'additionalExperiments': [*EXPERIMENTS, *environment.get('additionalExperiments', [])],
                'additionalPipelineOptions': [*OPTIONS, *environment.get('additionalPipelineOptions', [])],
            },
        }
    }


SETTINGS = read_settings(CONFIG)
LEDGER_ENVIRONMENT = (
    {'PGPASSWORD': f'{{{{ conn.{LEDGER_CONNECTION}.password }}}}'}
    if SETTINGS['ledger'].startswith('postgresql')
    else {}
)

with DAG(
    DAG_ID,
    doc_md=__doc__,
    schedule='0 2 * * *',
    start_date=datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
    catchup=False,  # a missed night is not made up for: each run costs budget
    max_active_runs=1,
    default_args={'retries': 3, 'retry_delay': datetime.timedelta(minutes=5)},
    params={
        'engine': Param('dataflow', enum=['dataflow', 'flink']),
        **{name: form_field(name, value) for name, value in SETTINGS.items()},
    },
    user_defined_macros={
        'flags': flags,
        'beam_options': beam_options,
        'run_name': run_name,
        'quoted': shlex.quote,
        'fixed': SETTINGS,
    },
    tags=['differential privacy'],
):
    ask_budget = BashOperator(
        task_id='ask_budget',
        bash_command='{{ var.value.dp_corpus_command }} plan {{ flags(params, dag_run) }}',
        env=LEDGER_ENVIRONMENT,
        append_env=True,
        skip_on_exit_code=EXIT_BUDGET,
        do_xcom_push=False,
    )

    @task.branch
    def choose_engine(params: Mapping[str, Any]) -> str:
        """The task that runs the job."""
        return f'run_on_{params["engine"]}'

    run_on_dataflow = DataflowStartFlexTemplateOperator(
        task_id='run_on_dataflow',
        project_id='{{ var.json.dp_corpus_dataflow.project }}',
        location='{{ var.json.dp_corpus_dataflow.region }}',
        body=launch_request,
        append_job_name=False,
        deferrable=True,
    )
    # The template's launcher does not wait for the job, so nothing has settled it yet.
    settle = BashOperator(
        task_id='settle',
        bash_command='{{ var.value.dp_corpus_command }} ledger settle {{ quoted(fixed.dataset) }} '
        '{{ quoted(run_name(params, dag_run)) }} --ledger={{ quoted(fixed.ledger) }}',
        env=LEDGER_ENVIRONMENT,
        append_env=True,
        do_xcom_push=False,
    )
    # Not BeamRunPythonPipelineOperator: to it a budget that has come to its end (exit code 3) is a
    # failure like any other, and it adds --labels=airflow-version=..., which is a setting of ours.
    run_on_flink = BashOperator(
        task_id='run_on_flink',
        bash_command='{{ var.value.dp_corpus_command }} generate '
        "{{ flags(params, dag_run, runner='FlinkRunner') }} --quiet "
        '-- {{ beam_options(var.json.dp_corpus_flink) }}',
        env=LEDGER_ENVIRONMENT,
        append_env=True,
        skip_on_exit_code=EXIT_BUDGET,
        do_xcom_push=False,
    )
    ask_budget >> choose_engine() >> [run_on_dataflow, run_on_flink]
    run_on_dataflow >> settle
