"""The whole job on one screen, and what surrounds one run of it."""

import dataclasses
import functools
import hashlib
import importlib.metadata
import json
import math
import os
import pathlib
import platform
import re
import traceback
import uuid
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import DebugOptions, PipelineOptions
from apache_beam.runners.runner import PipelineResult

from models.assembly import GeneratorSettings
from models.batching import BatchPlan
from models.clustering.centers import Centers, ClusterSettings
from models.decoders import family
from models.privacy import counts, report
from models.privacy.ex_post import BatchLoss
from models.privacy.params import MechanismParams
from models.privacy.randomness import RunKey
from models.prompts import PRESETS, read_template
from models.records import BatchId, Record
from pipeline.config import JobConfig
from pipeline.pages import dataset_card, report_page, restricted_page
from pipeline.plan import rho_by_stage
from transforms.assign import AssignBatches, CountContexts, DrawPlan
from transforms.cluster import ClusterRecords
from transforms.durable import (
    ERRORS_FOLDER,
    RUN_KEY,
    TEMPORARY_SUFFIX,
    is_empty,
    is_local,
    make_folder,
    read_file,
    read_key,
    write_file,
    write_key,
)
from transforms.predict import BATCHES_FOLDER, LOSSES_FOLDER, GenerateText
from transforms.read import ReadRecords, RecordFields, RecordRules, check_input, split_patterns
from transforms.write import DATA_FOLDER, Files, KeepRejected, WriteCorpus, WriteReports, WriteRestricted

if TYPE_CHECKING:
    from pipeline.ledger.ledger import Ledger

PLAN = 'plan.json'
CLUSTERING = 'clustering.json'
RUN = 'run.json'
CONFIG = 'config.toml'
REPORT = 'privacy_report.json'
# Other embedders are folders of weights.
EMBEDDERS = ('tfidf', 'minilm', 'decoder')
# Where a run is carried out changes nothing of what it writes.
MAY_CHANGE = frozenset({'runner', 'accelerator', 'ledger'})
_CHANGES = {
    'run_id': 'It has another run id.',
    'config': 'Its settings were others: config.toml there holds them.',
    'input': 'The input files are not those that it began with.',
    'model': 'The weights, the tokenizer, the prompt or the centres are not those that it began with.',
    'code': 'Another version of dp-corpus or of a library began it.',
}
WORK_FOLDERS = (BATCHES_FOLDER, LOSSES_FOLDER, ERRORS_FOLDER)
# A token of any vocabulary stands for fewer characters than this, but for runs of spaces.
_CHARACTERS_PER_TOKEN = 32
_HASHED_BYTES = 64 * 2**20
# Beam's experiments that show elements, which are records here, in a runner's UI.
_SHOWS_ELEMENTS = frozenset({'enable_data_sampling', 'enable_always_on_exception_sampling'})
# How Beam ends the error of a step: the error's last line, then the step.
_FAILED_STEP = re.compile(r"^(.*) \[while running '([^'\n]+)'\]$", re.MULTILINE)
# Its errors are of the model or without data (`transforms.predict`), so they may be shown.
_OPEN_STEP = 'Generate/Decode'


def build(
    root: beam.Pipeline,
    config: JobConfig,
    settings: GeneratorSettings,
    charge: report.LedgerEntry | None = None,
) -> None:
    """The graph of one run: read -> assign batches -> generate -> write and report."""
    work_dir, output = config.resolved_work_dir, str(config.output)
    params = settings.params
    # What follows travels to workers, who have no business with the ledger.
    config = dataclasses.replace(config, dataset=None, ledger=None)

    # records: Record, rejected: Rejection
    records, rejected = root | 'Read' >> ReadRecords(str(config.input), record_rules(config))
    # grouped: Record, with its cluster where the run has any; plan: one BatchPlan
    centers = Centers.read(config.centers_path) if config.clusters is not None else None
    grouped, plan = _plan_batches(records, config, params, centers)
    # batches: Batch, one for every planned one
    batches = grouped | 'Assign' >> AssignBatches(
        plan,
        work_dir,
        params.batch_size,
        unit=params.unit,
        examples_per_context=params.examples_per_context,
        text_limit=text_limit(config),
    )
    # examples: SyntheticExample; from here on everything is releasable
    # losses: BatchLoss, restricted
    examples, losses = batches | 'Generate' >> GenerateText(settings, work_dir, config.accelerator)
    totals = examples | 'Corpus' >> WriteCorpus(plan, output, config.shards)
    render = functools.partial(render_released, config, settings, software_versions(), centers, charge)
    _ = totals | 'Report' >> WriteReports(plan, render, output)
    # The curator's own
    restrict = functools.partial(render_restricted, config, params)
    _ = records | 'Restricted' >> WriteRestricted(rejected, batches, losses, plan, restrict, work_dir)
    if config.keep_rejected:
        _ = rejected | 'Rejected' >> KeepRejected(work_dir)


def _plan_batches(
    records: beam.PCollection[Record], config: JobConfig, params: MechanismParams, centers: Centers | None
) -> tuple[beam.PCollection[Record], beam.PCollection[BatchPlan]]:
    """Records -> records in their clusters, where there are any, and the single plan."""
    if config.batches_per_label is not None:
        plan = records.pipeline | 'Plan' >> beam.Create([configured_plan(config)], reshuffle=False)
        return records, plan
    work_dir = config.resolved_work_dir
    labels = config.label_values
    grouped, clustering, rho = records, None, config.count_rho
    if centers is not None:
        assert config.clusters is not None  # `build`
        rho_of_centers, rho = counts.split_rho(config.resolved_clustering_rho)
        # clustering: one Clustering
        grouped, clustering = records | 'Cluster' >> ClusterRecords(
            cluster_settings(config),
            labels,
            work_dir,
            FileSystems.join(work_dir, CLUSTERING),
            config.clusters,
            rho_of_centers,
            unit=params.unit,
            text_limit=text_limit(config),
        )
    # true_counts: one list of int, private
    true_counts = grouped | 'Count' >> CountContexts(
        labels, work_dir, unit=params.unit, centers=None if centers is None else centers.count
    )
    plan = true_counts | 'Plan' >> DrawPlan(
        FileSystems.join(work_dir, PLAN),
        labels,
        rho,
        params.batch_size,
        unit=params.unit,
        examples_per_context=params.examples_per_context,
        clustering=clustering,
    )
    return grouped, plan


def text_limit(config: JobConfig) -> int:
    """Characters of a text that any prompt could use."""
    return config.max_prompt_tokens * _CHARACTERS_PER_TOKEN


def run(config: JobConfig, beam_arguments: Sequence[str]) -> PipelineResult:
    """Prepares the folders, charges the ledger and runs the job to its end.

    The ledger has the whole price before the first step starts, and a run that is resumed
    pays nothing again (METHOD 7).

    Returns:
        Beam's result. This project adds no metrics to it.

    Raises:
        BudgetExceeded: The dataset's budget does not allow the run; no step has started.
        ConnectionError: The ledger cannot be reached; no step has started.
        FileExistsError: The output or the work directory is another run's.
        FileNotFoundError: No input file.
        ValueError: The input lacks a column, the prompt does not fit, or Beam does not
            know one of its options.
        RuntimeError: The graph cannot be built, with a cause; or a step failed, and then
            neither the text nor a cause holds anything private.
    """
    config = with_absolute_paths(config)
    settings = generator_settings(config)
    settings.check_prompts(config.label_values)
    if config.clusters is not None:
        cluster_settings(config).check()
    root = beam.Pipeline(options=beam_options(config, beam_arguments))
    ledger = None if config.ledger is None else _open_ledger(config.ledger)
    if ledger is not None:
        # Before any folder is made for a run that may not start; the binding answer comes below.
        ledger.check(
            str(config.dataset),
            run_id=config.resolved_run_id,
            unit=config.unit,
            rho=math.fsum(rho_by_stage(config).values()),
        )
    prepare(config)
    charge = None if ledger is None else reserve(ledger, config)
    build(root, config, settings, charge)
    # What cannot be pickled fails here, before anything is read: such causes may be shown.
    root.to_runner_api()
    try:
        with root:
            pass  # Leaving the block runs the graph and waits.
    except Exception as error:  # noqa: BLE001 - a runner's error quotes that of a step, and that may quote data
        failure = _keep_failure(config, error, root.applied_labels)
    else:
        # A template's launcher only submits: its job is not over.
        if ledger is not None and is_finished(config):
            _settle(ledger, config)
        return root.result
    raise RuntimeError(failure)


def _open_ledger(where: str) -> 'Ledger':
    # Not at the top: workers import this module, and have no business with databases.
    from pipeline.ledger.ledger import Ledger

    return Ledger.open(where)


def _settle(ledger: 'Ledger', config: JobConfig) -> None:
    dataset, run_id = str(config.dataset), config.resolved_run_id
    try:
        ledger.settle(dataset, run_id)
    except ConnectionError as error:
        # The corpus is whole and paid for: what is missing is a note.
        warnings.warn(
            f'Expected the ledger to note that run_id={run_id!r} is finished, got: {error} The run is; '
            f'when the ledger is back: dp-corpus ledger settle {dataset} {run_id}.',
            stacklevel=2,
        )


def is_finished(config: JobConfig) -> bool:
    """Whether the run's report is there, which is written last."""
    return FileSystems.exists(FileSystems.join(str(config.output), REPORT))


def reserve(ledger: 'Ledger', config: JobConfig) -> report.LedgerEntry:
    """Charges a prepared run to its dataset; free where that was done before."""
    key = read_key(config.resolved_work_dir)
    # Under the key: a plain digest of the input would let anyone who sees the ledger test a guess of it.
    identity = key.hash('identity', json.dumps(fingerprint(config), sort_keys=True).encode(), size=32)
    return ledger.reserve(
        str(config.dataset),
        run_id=config.resolved_run_id,
        unit=config.unit,
        rho_by_stage=rho_by_stage(config),
        identity=identity.hex(),
        key_commitment=key.commitment(config.resolved_run_id),
    )


def _keep_failure(config: JobConfig, error: Exception, steps: Collection[str]) -> str:
    """Writes a failed run's error into the work directory; returns what anyone may read of it."""
    work_dir = config.resolved_work_dir
    name = f'run.{uuid.uuid4().hex}.txt'
    details = ''.join(traceback.format_exception(error)).encode(errors='replace')
    write_file(FileSystems.join(work_dir, ERRORS_FOLDER, name), details)
    found = [(line, step) for line, step in _FAILED_STEP.findall(str(error)) if step in steps]
    cause, step = found[-1] if found else ('', None)
    if step is not None and step.startswith(f'{_OPEN_STEP}/'):
        # Beam names a step of several outputs by what it runs as well.
        step = _OPEN_STEP
    if step != _OPEN_STEP:
        cause = 'an error whose text may quote records.'
    return (
        f'Expected every step to finish, got step={step!r}, which ended with: {cause} '
        f'The details are restricted to the curator: {ERRORS_FOLDER}/{name} in the work directory. '
        'Remove the cause and repeat the command: the run goes on where it stopped.'
    )


def with_absolute_paths(config: JobConfig) -> JobConfig:
    """The config with its local paths made absolute: workers have another working directory."""

    def absolute(path: str) -> str:
        return os.path.abspath(path) if is_local(path) else path

    changed: dict[str, Any] = {
        'run_id': config.resolved_run_id,
        'work_dir': absolute(config.resolved_work_dir),
    }
    for name in ('output', 'checkpoint', 'tokenizer', 'schema', 'centers'):
        if (path := getattr(config, name)) is not None:
            changed[name] = absolute(path)
    if config.input is not None:
        changed['input'] = ','.join(absolute(pattern) for pattern in split_patterns(config.input))
    if config.prompt not in PRESETS:
        changed['prompt'] = absolute(config.prompt)
    if config.embedder is not None and config.embedder not in EMBEDDERS:
        changed['embedder'] = absolute(config.embedder)
    return dataclasses.replace(config, **changed)


def beam_options(config: JobConfig, arguments: Sequence[str]) -> PipelineOptions:
    """Beam's options from the runner and what followed after `--`.

    Raises:
        ValueError: Beam does not know an option and would drop it with a warning, or an
            option shows records in the runner's UI.
    """
    # Beam drops without a word what belongs to no option.
    strays = [
        argument
        for before, argument in zip(['', *arguments], arguments)
        if not argument.startswith('--') and ('=' in before or not before.startswith('--'))
    ]
    if strays:
        raise ValueError(
            f"Expected only Beam's options, --name=value, after --, got arguments={strays}. "
            'Check their spelling.'
        )
    options = PipelineOptions([f'--runner={config.runner}', *arguments])
    known = options.get_all_options(retain_unknown_options=False)
    if unknown := sorted(set(options.get_all_options(retain_unknown_options=True)) - set(known)):
        raise ValueError(
            f"Expected only Beam's options after --, got options={unknown}. Check their spelling."
        )
    if shown := sorted(_SHOWS_ELEMENTS & set(options.view_as(DebugOptions).experiments or ())):
        raise ValueError(
            f'Expected no experiment that samples elements, got experiments={shown}. '
            'They would show records to everyone who sees the job: leave them out.'
        )
    return options


def record_rules(config: JobConfig) -> RecordRules:
    """What makes a row of the input a record."""
    fields = RecordFields(
        text=config.text_field,
        label=config.label_field,
        unit=config.unit_field,
        record_id=config.record_id_field,
    )
    labels = tuple(label for label in config.label_values if label is not None)
    return RecordRules(
        fields=fields, labels=labels or None, unit=config.unit, max_record_bytes=config.max_record_bytes
    )


def configured_plan(config: JobConfig) -> BatchPlan:
    """The plan where the config gives the batches: public, and free."""
    assert config.batches_per_label is not None
    labels = config.label_values
    return BatchPlan(
        labels=labels,
        batches_per_group=(config.batches_per_label,) * len(labels),
        noisy_counts=None,
        contexts_rho=0.0,
    )


def generator_settings(config: JobConfig) -> GeneratorSettings:
    """What workers build their generator from; checks that the prompts fit."""
    for name, path in (('checkpoint', config.checkpoint_path), ('tokenizer', config.tokenizer_path)):
        if not FileSystems.exists(str(path)) and not path.exists():
            raise FileNotFoundError(f'Expected the model at {name}={str(path)!r}, which is not there.')
    family.family_of(config.model).check_files(config.model, config.model_files)
    settings = GeneratorSettings(
        run_id=config.resolved_run_id,
        params=config.params(),
        model=config.model,
        checkpoint=str(config.checkpoint_path),
        tokenizer=str(config.tokenizer_path),
        dtype=config.dtype,
        micro_batch_size=config.resolved_micro_batch_size,
        max_prompt_tokens=config.max_prompt_tokens,
        template=read_template(config.prompt),
        label_words=tuple(config.label_words.items()),
        label_name=config.label_name,
        text_name=config.text_name,
        schema=pathlib.Path(config.schema).read_text(encoding='utf-8').strip() if config.schema else None,
    )
    return settings


def cluster_settings(config: JobConfig) -> ClusterSettings:
    """What workers build their clusterer from."""
    model: dict[str, Any] = {}
    if config.resolved_embedder == 'decoder':
        model = {
            'model': config.model,
            'checkpoint': str(config.checkpoint_path),
            'tokenizer': str(config.tokenizer_path),
            'dtype': config.dtype,
        }
    return ClusterSettings(centers=str(config.centers_path), embedder=config.resolved_embedder, **model)


def prepare(config: JobConfig) -> None:
    """Makes the run's folders, key and records of itself, or checks that they are this run's.

    Raises:
        FileExistsError: A folder holds something else, or a run of other settings, input,
            model or code: which of them, the error says.
        FileNotFoundError: Finished batches without the key or the plan that they follow.
    """
    work_dir, output = config.resolved_work_dir, str(config.output)
    identity = fingerprint(config)
    known = FileSystems.join(work_dir, RUN)
    for place, option in ((work_dir, 'work_dir'), (output, 'output')):
        # Looked at in this order: another launcher of this run may have begun in between.
        if not is_empty(place, besides=(f'{RUN}*',)) and not FileSystems.exists(known):
            raise FileExistsError(
                f"Expected an empty folder or this run's, got {option}={place!r}, which holds other files. "
                f'Choose another --{option.replace("_", "-")}.'
            )
    make_folder(work_dir, private=True)
    write_file(known, (json.dumps(identity, indent=2) + '\n').encode())
    begun = json.loads(read_file(known))
    if changed := sorted(name for name, digest in identity.items() if begun.get(name) != digest):
        raise FileExistsError(
            f'Expected to resume the run of work_dir={work_dir!r}, got changed={changed}. '
            f'{" ".join(_CHANGES[name] for name in changed)} Repeat that run exactly to resume it, or '
            'start another with another --output (and --work-dir), which pays its own price.'
        )
    for folder in (*(FileSystems.join(work_dir, name) for name in WORK_FOLDERS), f'{output}/{DATA_FOLDER}'):
        make_folder(folder)
    if not is_empty(FileSystems.join(work_dir, BATCHES_FOLDER), besides=(f'*{TEMPORARY_SUFFIX}',)):
        for name in (RUN_KEY, PLAN, *((CLUSTERING,) if config.clusters is not None else ())):
            if not FileSystems.exists(FileSystems.join(work_dir, name)):
                # Another key or plan would deal the records out anew: some would vote twice.
                raise FileNotFoundError(
                    f'Expected the key and the plan beside finished batches, got no {name} in {work_dir!r}. '
                    'Restore it, or start a new run, which spends its budget anew.'
                )
    write_key(work_dir, RunKey.new())
    write_file(FileSystems.join(work_dir, CONFIG), config.to_toml().encode())
    if config.batches_per_label is not None:
        # For the curator and the progress display; the graph takes it from the config.
        write_file(FileSystems.join(work_dir, PLAN), configured_plan(config).to_json().encode())


def fingerprint(config: JobConfig) -> dict[str, str]:
    """What may not change between a run and its resumption, as digests: config, input, model, code.

    Settings that change nothing about the output, `MAY_CHANGE`, are left out. Files of up to 64
    MiB are known by content, larger ones by name, size and time: reading them all would take as
    long as the run's first stage.
    """
    config = with_absolute_paths(config)
    settings = {
        field.name: getattr(config, field.name)
        for field in dataclasses.fields(config)
        if field.name not in MAY_CHANGE
    }
    return {
        'run_id': config.resolved_run_id,
        'config': hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest(),
        'input': _input_digest(config),
        'model': _digest_of_files(_model_files(config)),
        'code': _code_digest(),
    }


def _input_digest(config: JobConfig) -> str:
    files = check_input(str(config.input), record_rules(config).fields)
    listing = sorted(
        (metadata.path, metadata.size_in_bytes, metadata.last_updated_in_seconds)
        for match in FileSystems.match(files)
        for metadata in match.metadata_list
    )
    parts: list[Any] = []
    for path, size, updated in listing:
        if is_local(path) and size <= _HASHED_BYTES:
            parts.append((path, hashlib.sha256(read_file(path)).hexdigest()))
        else:
            # Object stores keep a checksum of the content; of a local file Beam knows its size.
            parts.append((path, size, updated, FileSystems.checksum(path)))
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _digest_of_files(paths: Iterable[pathlib.Path]) -> str:
    """Digest of names and contents; of size and time for weights, which can be tens of gigabytes."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        status = path.stat()
        small = status.st_size <= _HASHED_BYTES
        content = path.read_bytes() if small else str(status.st_mtime_ns).encode()
        for part in (path.name.encode(), str(status.st_size).encode(), content):
            digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()


@functools.cache  # of what this process began with
def _code_digest() -> str:
    """Digest of this package's source and of the versions that compute with it."""
    root = pathlib.Path(__file__).parent.parent
    sources = (
        path
        for package in ('models', 'transforms', 'pipeline')
        for path in (root / package).rglob('*')
        if path.suffix in ('.py', '.jinja')
    )
    parts = _digest_of_files(sources), json.dumps(software_versions(), sort_keys=True)
    return hashlib.sha256('\n'.join(parts).encode()).hexdigest()


def _model_files(config: JobConfig) -> list[pathlib.Path]:
    checkpoint = config.checkpoint_path
    texts = [pathlib.Path(name) for name in (config.prompt, config.schema) if name and name not in PRESETS]
    folders = [checkpoint]
    if config.clusters is not None:
        folders.append(config.centers_path)
        if pathlib.Path(config.resolved_embedder).is_dir():
            folders.append(pathlib.Path(config.resolved_embedder))
    contents = (path for folder in folders for path in folder.rglob('*') if path.is_file())
    return [config.tokenizer_path, *texts, *contents]


def software_versions() -> dict[str, str]:
    """Versions that a report names."""
    names = ('dp-corpus', 'apache-beam', 'jax', 'gemma', 'tensorflow-text', 'numpy', 'opendp')
    return {'python': platform.python_version()} | {name: importlib.metadata.version(name) for name in names}


def public_settings(config: JobConfig, params_fields: Sequence[str]) -> dict[str, Any]:
    """The config's settings for the report: the mechanism's and the curator's paths are left out."""
    # Paths tell the layout of the curator's machine, and nothing about the guarantee.
    hidden = {
        'input',
        'output',
        'work_dir',
        'checkpoint',
        'tokenizer',
        'schema',
        'run_id',
        'delta',
        'centers',
        'dataset',  # the ledger's entry says it
        *MAY_CHANGE,
        *params_fields,
    }
    settings = {}
    for field in dataclasses.fields(config):
        if field.name not in hidden:
            value = getattr(config, field.name)
            settings[field.name] = ', '.join(value) if isinstance(value, tuple) else value
    if config.prompt not in PRESETS:
        settings['prompt'] = 'own template'
    if config.clusters is not None:
        known = config.resolved_embedder in EMBEDDERS
        settings['embedder'] = config.resolved_embedder if known else 'own MiniLM weights'
        settings['clustering_rho'] = config.resolved_clustering_rho
        del settings['count_rho']
    return settings


def render_released(
    config: JobConfig,
    settings: GeneratorSettings,
    versions: Mapping[str, str],
    centers: Centers | None,
    charge: report.LedgerEntry | None,
    totals: report.CorpusTotals,
    plan: BatchPlan,
) -> Files:
    """The files beside the corpus: reports, card and config, from public values alone."""
    noisy = plan.noisy_counts or (None,) * len(plan.group_names)
    groups = zip(plan.group_names, plan.batches_per_group, noisy, strict=True)
    privacy_report = report.build_privacy_report(
        settings.params,
        run_id=settings.run_id,
        delta=config.resolved_delta,
        plan=[
            report.GroupPlan(label=label, cluster=cluster, batches=batches, noisy_count=count)
            for (label, cluster), batches, count in groups
        ],
        corpus=totals,
        settings=public_settings(config, [f.name for f in dataclasses.fields(settings.params)]),
        versions=versions,
        noisy_counts_rho=plan.contexts_rho,
        clusters=None if centers is None else released_clusters(centers, plan),
        declared_units=config.records,
        ledger=charge,
    )
    languages = () if config.model != 'bundled' else ('en',)
    return {
        'privacy_report.html': report_page.render_html(privacy_report).encode(),
        'README.md': dataset_card.render_card(privacy_report, languages=languages).encode(),
        # Last: where it is, the run is finished.
        REPORT: privacy_report.to_json().encode(),
    }


def released_clusters(centers: Centers, plan: BatchPlan) -> report.Clusters:
    """What the report says of the clusters: the centres' facts and the first histogram."""
    assert plan.clustering is not None  # `build`
    cells = zip(plan.labels, plan.clustering.kept, plan.clustering.noisy_counts, strict=True)
    return report.Clusters(
        source=centers.source,
        centers_rho=centers.rho,
        counts_rho=plan.clustering.rho,
        embedder=centers.embedder,
        embedder_fingerprint=centers.embedder_fingerprint,
        centers_fingerprint=centers.fingerprint,
        corpus_fingerprint=centers.corpus_fingerprint,
        corpus_texts=centers.corpus_texts,
        center_counts=tuple(
            report.CenterCounts(label=label, kept=kept, counts=counts) for label, kept, counts in cells
        ),
    )


def render_restricted(
    config: JobConfig,
    params: MechanismParams,
    reasons: dict[str, int],
    sizes: dict[BatchId, int],
    records: int,
    losses: list[BatchLoss],
    plan: BatchPlan,
) -> Files:
    """The curator's report, as data and as a page."""
    by_group = dict.fromkeys(range(len(plan.group_names)), 0)
    for batch_id, size in sizes.items():
        by_group[batch_id.group] += size
    restricted = report.RestrictedReport(
        run_id=config.resolved_run_id,
        records_read=records + sum(reasons.values()),
        rejected_by_reason=reasons,
        contexts_per_batch={str(batch_id): size for batch_id, size in sizes.items()},
        true_counts_by_group=tuple(
            report.GroupContexts(
                restricted_label=label, restricted_cluster=cluster, true_count=by_group[group]
            )
            for group, (label, cluster) in enumerate(plan.group_names)
        ),
        losses=report.ex_post_losses(losses, params) if params.is_ex_post else None,
    )
    return {
        'restricted_report.json': restricted.to_json().encode(),
        'restricted_report.html': restricted_page.render_restricted_page(restricted).encode(),
    }
