"""The command line: flags -> JobConfig -> plan, run or report; no logic of its own.

Flags are made from the fields of `JobConfig`, so that a field, a key of the TOML file
and a flag are one thing. Heavy libraries are imported when a run starts, not before.
"""

import contextlib
import dataclasses
import faulthandler
import inspect
import json
import logging
import os
import pathlib
import re
import sys
import tempfile
import typing
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal

import rich.console
import rich.markup
import rich.table
import typer

from pipeline import curator_files
from pipeline import plan as plan_lib
from pipeline.commands import ledger as ledger_commands
from pipeline.commands import schema as schema_command
from pipeline.config import JobConfig, read_config, setting_types
from pipeline.ledger.budget import BudgetExceeded
from pipeline.methods import METHODS

EXIT_FAILED = 1  # a run started and did not finish, or its ledger could not be reached
EXIT_USAGE = 2  # the request cannot be carried out as given
EXIT_BUDGET = 3  # the dataset's budget does not allow it: where a schedule stops, and no fault
# What native libraries write past Python while they load, when it is no more than information.
# TensorFlow also misses a GPU on machines without one: it only tokenizes here, on the CPU.
_CHATTER = re.compile(
    rb'I\d{4} |E\d{4} .*failed call to cuInit|WARNING: All log messages before absl::'
    rb'|\w+\.cc\(\d+\) LOG\(INFO\)'
)

app = typer.Typer(
    name='dp-corpus',
    help='Differentially private synthetic text from records that may not be shared.',
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode='rich',
    pretty_exceptions_enable=False,
)
app.add_typer(ledger_commands.app, name='ledger')
app.command()(schema_command.schema)


def _with_config_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command one flag for each field of `JobConfig`, grouped by meaning."""
    hints = setting_types(JobConfig)
    signature = inspect.signature(command)
    parameters = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    for field in dataclasses.fields(JobConfig):
        default = field.default
        text = field.metadata['help']
        if default not in (None, (), dataclasses.MISSING, False):
            text += f' [dim](default: {default})[/dim]'
        hint = hints[field.name]
        base = str if hint == tuple[str, ...] else hint
        name = '--' + field.name.replace('_', '-')
        option = typer.Option(
            f'{name}/--no-{name[2:]}' if base is bool else name,
            help=text,
            rich_help_panel=field.metadata['panel'],
            show_default=False,
        )
        parameters.append(
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=None,
                annotation=Annotated[base | None, option],
            )
        )
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command


def _config(path: str | None, flags: dict[str, Any]) -> JobConfig:
    """Reads the config, or ends with a usage error."""
    if isinstance(flags.get('labels'), str):
        flags['labels'] = tuple(part.strip() for part in flags['labels'].split(',') if part.strip())
    return read_config(path, flags)


ConfigFlag = Annotated[
    str | None,
    typer.Option('--config', help='TOML file whose keys are the flags below; flags win.', metavar='FILE'),
]
JsonFlag = Annotated[bool, typer.Option('--json', help='Print one JSON object and nothing else.')]
QuietFlag = Annotated[bool, typer.Option('--quiet', help='Print nothing but errors.')]


@app.command()
@_with_config_flags
def plan(config: ConfigFlag = None, as_json: JsonFlag = False, **flags: Any) -> None:
    """Say what a run would release and cost, before anything is read or paid.

    Give --epsilon and it solves for the private tokens of a batch, or give
    --max-private-tokens and it answers with epsilon. With --dataset and --ledger it asks
    whether the run would fit into what is left, and ends with 3 where it would not.
    """
    job_config = _config(config, flags)
    run_plan = plan_lib.plan_run(job_config)
    if job_config.dataset is not None:
        run_plan = dataclasses.replace(run_plan, budget=plan_lib.ask_ledger(job_config))
    if as_json:
        print(run_plan.to_json())
    else:
        _print_plan(run_plan)
    if run_plan.budget is not None and not run_plan.budget.fits:
        raise typer.Exit(EXIT_BUDGET)


@app.command(context_settings={'allow_extra_args': True, 'ignore_unknown_options': False})
@_with_config_flags
def generate(
    context: typer.Context,
    config: ConfigFlag = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
    **flags: Any,
) -> None:
    """Run the job: sensitive records in, a private corpus and its report out.

    Options of Beam follow after a bare [bold]--[/bold]. The same command again resumes a
    run that died, and spends nothing twice.
    """
    job_config = _config(config, flags)
    if job_config.input is None or job_config.output is None:
        raise ValueError(
            f'Expected an input and an output, got input={job_config.input!r}, output={job_config.output!r}. '
            'Give --input FILES --output FOLDER.'
        )
    run_plan = plan_lib.plan_run(job_config)
    console = rich.console.Console(stderr=True, quiet=quiet or as_json)
    console.print(
        f'[bold]{job_config.resolved_run_id}[/bold]: {_statement(run_plan)}, '
        f'{run_plan.max_private_tokens:,} private tokens per batch. Loading the model takes half a minute.',
        soft_wrap=True,
    )
    _silence_libraries()
    with _without_chatter():
        from pipeline import progress
        from pipeline.run import folders, start

        # Loads the tokenizer, and TensorFlow with it, and so before the display begins.
        METHODS[job_config.method].prepare(job_config)
    with progress.watch(job_config.resolved_work_dir, console):
        start.run(job_config, context.args)
    if not folders.is_finished(job_config):
        # A template's launcher only submits.
        console.print(f'Submitted. The report will be in {job_config.output}.', soft_wrap=True)
        return
    _show_report(str(job_config.output), as_json=as_json, quiet=quiet)
    restricted = f'{job_config.resolved_work_dir}/restricted_report.html'
    console.print(f"The curator's own report, never for release: {restricted}", soft_wrap=True)
    if job_config.dataset is not None and not console.quiet:
        from pipeline.ledger.ledger import Ledger

        try:
            account = Ledger.open(str(job_config.ledger)).account(job_config.dataset)
        except ConnectionError as error:
            # The run is over, and was charged before it began.
            console.print(f'The run is finished and charged, but: {error}', soft_wrap=True, markup=False)
        else:
            ledger_commands.print_spent(account, console)


@app.command()
def report(
    output: Annotated[str, typer.Argument(help="A finished run's corpus folder.", metavar='OUTPUT')],
    as_json: JsonFlag = False,
    html: Annotated[
        str | None,
        typer.Option('--html', help='Write the page to this file (- for standard output).', metavar='FILE'),
    ] = None,
) -> None:
    """Show a finished run's privacy report again, in the terminal, as JSON or as a page."""
    if html is not None:
        from pipeline.pages import report_page

        page = report_page.render_html(_read_report(output))
        if html == '-':
            print(page)
        else:
            pathlib.Path(html).write_text(page, encoding='utf-8')
        return
    _show_report(output, as_json=as_json, quiet=False)


InputFlag = Annotated[
    str, typer.Option('--input', help='Files of texts: JSONL, CSV or Parquet; globs and comma lists.')
]
TextFieldFlag = Annotated[str, typer.Option('--text-field', help='Column of the text.')]
EmbedderFlag = Annotated[
    str, typer.Option('--embedder', help='tfidf, minilm, decoder, or a folder of MiniLM weights.')
]
ModelFlag = Annotated[str, typer.Option('--model', help='Model size, for the embedder decoder.')]
CheckpointFlag = Annotated[str | None, typer.Option('--checkpoint', help='Its weights.')]
TokenizerFlag = Annotated[str | None, typer.Option('--tokenizer', help='Its SentencePiece file.')]
DtypeFlag = Annotated[
    Literal['float32', 'bfloat16'], typer.Option('--dtype', help='Type of its weights and computation.')
]
SeedFlag = Annotated[int, typer.Option('--seed', help='Public seed of the clustering.')]


@app.command()
def centers(
    input_: InputFlag,
    output: Annotated[str, typer.Option('--output', help='New folder for the centres.')],
    text_field: TextFieldFlag = 'text',
    count: Annotated[int, typer.Option('--count', help='Centres.')] = 500,
    embedder: EmbedderFlag = 'tfidf',
    source: Annotated[
        Literal['public', 'k-means', 'dp-k-means'],
        typer.Option(
            '--source',
            help='What the texts are: public; or private ones, for research: k-means voids every guarantee, '
            'dp-k-means costs --rho.',
        ),
    ] = 'public',
    rho: Annotated[float | None, typer.Option('--rho', help='Price of dp-k-means in zCDP.')] = None,
    dataset: Annotated[
        str | None, typer.Option('--dataset', help="Charge dp-k-means to this dataset's budget.")
    ] = None,
    ledger: Annotated[
        str | None, typer.Option('--ledger', help='The ledger that keeps it: SQLite file, or postgresql://.')
    ] = None,
    run_id: Annotated[
        str | None,
        typer.Option('--run-id', help="Public name of the charge. Default: the output folder's name."),
    ] = None,
    seed: SeedFlag = 0,
    model: ModelFlag = 'bundled',
    checkpoint: CheckpointFlag = None,
    tokenizer: TokenizerFlag = None,
    dtype: DtypeFlag = 'float32',
    as_json: JsonFlag = False,
) -> None:
    """Fit the centres of a public corpus, for `generate --clusters`.

    The package has centres of its own, of encyclopedia texts; centres of a public corpus
    nearer to your records group them better. Choose it without looking at the records.
    """
    _silence_libraries()
    with _without_chatter(), _unquoted():
        from pipeline import centers as centers_lib

        settings = centers_lib.embedder_settings(
            None, embedder, model=model, checkpoint=checkpoint, tokenizer=tokenizer, dtype=dtype
        )
        centers_lib.check_fit(
            pathlib.Path(output), source=source, rho=rho, dataset=dataset, ledger=ledger, run_id=run_id
        )
        reservation = None
        if dataset is not None and ledger is not None and rho is not None:
            reservation = centers_lib.charge_fit(
                input_,
                pathlib.Path(output),
                dataset=dataset,
                ledger=ledger,
                run_id=run_id,
                text_field=text_field,
                settings=settings,
                count=count,
                rho=rho,
                seed=seed,
            )
        texts = centers_lib.read_texts(input_, text_field)
        made = centers_lib.make_centers(
            texts,
            pathlib.Path(output),
            settings=settings,
            source=source,
            count=count,
            rho=rho,
            seed=seed,
            reservation=reservation,
        )
        if reservation is not None and ledger is not None:
            centers_lib.settle_fit(reservation, ledger)
    facts: dict[str, Any] = {
        'output': output,
        'count': made.count,
        'embedder': made.embedder,
        'source': made.source,
        'rho': made.rho,
        'fingerprint': made.fingerprint,
        'corpus_fingerprint': made.corpus_fingerprint,
        'corpus_texts': made.corpus_texts,
    }
    if reservation is not None:
        facts['charged_as'] = reservation.run_id
    if as_json:
        print(json.dumps(facts, indent=2))
        return
    console = rich.console.Console()
    of_what = f'{made.corpus_texts:,} public texts' if made.corpus_texts else 'private texts'
    console.print(f'{made.count:,} centres of {of_what} by {made.embedder}: {output}', soft_wrap=True)
    if made.source == 'k-means':
        console.print(
            '[red]For research only:[/red] fitted on private texts without privacy. A run with them has no '
            'guarantee, and its report says so.'
        )
    if reservation is not None:
        console.print(
            f'Charged to {reservation.dataset} as {reservation.run_id}: a run on it with this ledger and '
            'these centres is not charged for them again.',
            soft_wrap=True,
            markup=False,
        )


@app.command()
def clusters(
    input_: InputFlag,
    output: Annotated[
        str, typer.Option('--output', help='New .html or .json file, restricted to the curator.')
    ],
    text_field: TextFieldFlag = 'text',
    centers_folder: Annotated[
        str | None, typer.Option('--centers', help="Folder of public centres. Default: the package's.")
    ] = None,
    embedder: EmbedderFlag = 'tfidf',
    kept: Annotated[int, typer.Option('--clusters', help='Centres that rebalancing keeps.')] = 100,
    count: Annotated[int, typer.Option('--count', help='Clusters of k-means.')] = 500,
    rho: Annotated[float, typer.Option('--clustering-rho', help='Price of each private method.')] = 0.005,
    delta: Annotated[float, typer.Option('--delta', help='delta for the epsilon of that price.')] = 1e-6,
    seed: SeedFlag = 0,
    model: ModelFlag = 'bundled',
    checkpoint: CheckpointFlag = None,
    tokenizer: TokenizerFlag = None,
    dtype: DtypeFlag = 'float32',
    as_json: JsonFlag = False,
) -> None:
    """Compare ways to cluster the records: k-means, DP k-means, public centres, rebalanced ones.

    For research and for the curator's eyes: true figures of private records, released
    without noise. Nothing of it belongs beside a corpus.
    """
    path = pathlib.Path(output)
    curator_files.check(path, curator_files.PAGE_OR_JSON)
    _silence_libraries()
    with _without_chatter(), _unquoted():
        from pipeline import centers as centers_lib
        from pipeline import clusters as clusters_lib
        from pipeline.pages import clusters_page

        settings = centers_lib.embedder_settings(
            centers_folder, embedder, model=model, checkpoint=checkpoint, tokenizer=tokenizer, dtype=dtype
        )
        clusterer = settings.build()
        texts = centers_lib.read_texts(input_, text_field)
        comparison = clusters_lib.compare_clusterings(
            centers_lib.embed_all(clusterer.embedder, texts),
            centers=clusterer.centers,
            count=count,
            kept=kept,
            rho=rho,
            delta=delta,
            seed=seed,
        )
    clusters_lib.write_comparison(comparison, path)
    if as_json:
        print(comparison.to_json(), end='')
    else:
        clusters_page.render_terminal(comparison, rich.console.Console())


audit_app = typer.Typer(
    help="Look for what a proof cannot see: a program that does something else. For the curator's eyes.",
    no_args_is_help=True,
    rich_markup_mode='rich',
)
app.add_typer(audit_app, name='audit')
AuditFileFlag = Annotated[
    str | None,
    typer.Option('--result', help='New .json file for the whole result, readable by its owner alone.'),
]


@audit_app.command('leave-one-out')
@_with_config_flags
def leave_one_out(
    config: ConfigFlag = None,
    outsiders: Annotated[
        int, typer.Option('--outsiders', help='Contexts of other batches to put in, one by one.')
    ] = 8,
    sabotage: Annotated[
        Literal['none', 'no-clipping', 'paste'],
        typer.Option('--sabotage', help='Break the mechanism on purpose: the audit must notice.'),
    ] = 'none',
    result_file: AuditFileFlag = None,
    as_json: JsonFlag = False,
    **flags: Any,
) -> None:
    """Compare each context's true influence on a batch with the bound that is reported for it.

    Decodes a batch of each label as a run would and replays its tokens without each of its
    contexts, and with some of other batches. Ends with 1 where a bound is broken. The
    result holds true losses: it is restricted to the curator.
    """

    def audit(job_config: JobConfig, progress: Callable[[str], None]) -> Any:
        from pipeline import audit as audit_lib

        return audit_lib.leave_one_out(job_config, outsiders=outsiders, sabotage=sabotage, progress=progress)

    job_config = _config(config, flags)
    if job_config.input is None:
        # Before the libraries are loaded, which takes a while.
        raise ValueError('Expected records to audit, got input=None. Give --input FILES.')
    _audit(audit, job_config, result_file, as_json=as_json)


@audit_app.command('reconstruction')
@_with_config_flags
def reconstruction(
    config: ConfigFlag = None,
    keys: Annotated[
        int, typer.Option('--keys', help='Made-up 5-digit keys; half of them are shown.')
    ] = 10_000,
    seed: Annotated[int, typer.Option('--seed', help='Of the keys and of the run.')] = 0,
    sabotage: Annotated[
        Literal['none', 'paste'],
        typer.Option('--sabotage', help='Break the mechanism on purpose: the audit must notice.'),
    ] = 'none',
    result_file: AuditFileFlag = None,
    as_json: JsonFlag = False,
    **flags: Any,
) -> None:
    """Hide made-up keys among records and count those that come out, beside keys never shown.

    Reads no input. Ends with 1 where shown keys come out so much more often than others
    that chance explains it less than once in a thousand.
    """

    def audit(job_config: JobConfig, progress: Callable[[str], None]) -> Any:
        from pipeline import audit as audit_lib

        return audit_lib.reconstruction(
            job_config, keys=keys, seed=seed, sabotage=sabotage, progress=progress
        )

    _audit(audit, _config(config, flags), result_file, as_json=as_json)


def _audit(
    audit: Callable[[JobConfig, Callable[[str], None]], Any],
    job_config: JobConfig,
    result_file: str | None,
    *,
    as_json: bool,
) -> None:
    """Runs an audit, shows and keeps its result, and ends with 1 where it found a violation."""
    path = None if result_file is None else pathlib.Path(result_file)
    if path is not None:
        curator_files.check(path, curator_files.JSON)
    from pipeline import audit as audit_lib

    _silence_libraries()
    # Standard error is held back meanwhile.
    console = rich.console.Console(quiet=as_json)
    with console.status('Starting') as status, _without_chatter(), _unquoted():
        result = audit(job_config, lambda said: status.update(said))
    if path is not None:
        audit_lib.write_audit(result, path)
    if as_json:
        print(result.to_json(), end='')
    else:
        audit_lib.render(result, rich.console.Console())
    if not result.ok:
        raise typer.Exit(EXIT_FAILED)


def _read_report(output: str) -> Any:
    from apache_beam.io.filesystems import FileSystems

    from models.privacy.report import PrivacyReport
    from transforms.durable import read_file

    path = FileSystems.join(output, 'privacy_report.json')
    try:
        return PrivacyReport.from_json(read_file(path).decode())
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f'Expected the corpus folder of a finished run, got no privacy_report.json in {output!r}. '
            'Give the folder that --output named.'
        ) from error


def _show_report(output: str, *, as_json: bool, quiet: bool) -> None:
    privacy_report = _read_report(output)
    if as_json:
        print(privacy_report.to_json(), end='')
    elif not quiet:
        from pipeline.pages import report_page

        report_page.render_terminal(privacy_report, rich.console.Console())
        rich.console.Console().print(f'Corpus and report: {output}', soft_wrap=True)


def _statement(run_plan: plan_lib.RunPlan) -> str:
    """The guarantee in a few words."""
    if run_plan.statement == 'ex-post':
        return 'ex-post: the loss is known after the run, to the curator only'
    if run_plan.statement == 'none':
        return 'NONE: the centres were fitted on private records, for research only'
    return f'ε = {run_plan.epsilon:.6g} at δ = {run_plan.delta:.6g}'


def _print_plan(run_plan: plan_lib.RunPlan) -> None:
    """The plan as a table."""
    table = rich.table.Table(show_header=False, box=None, pad_edge=False)
    rows = [('Guarantee', _statement(run_plan))]
    if run_plan.rho_total is not None:
        closed_form = f'closed form ε = {run_plan.epsilon_closed_form:.6g}'
        rows.append(('', f'ρ = {run_plan.rho_total:.6g} in zCDP; {closed_form}'))
    rows += [
        ('Private tokens per batch', f'at most {run_plan.max_private_tokens:,}'),
        ('All tokens per batch', f'at most {run_plan.max_batch_tokens:,}'),
    ]
    if run_plan.rho_per_private_token is not None:
        rows.append(('ρ per private token', f'{run_plan.rho_per_private_token:.6g}'))
    rows.append(('ρ of noisy counts', f'{run_plan.rho_counts:.6g}'))
    if run_plan.rho_centers:
        rows.append(('ρ of the centres', f'{run_plan.rho_centers:.6g}'))
    if run_plan.expected_batches is None:
        rows.append(('Batches', 'not known: declare --records or --batches-per-label'))
    else:
        rows.append(('Batches', f'about {run_plan.expected_batches:,}'))
        rows.append(('Private tokens', f'about {run_plan.expected_private_tokens:,}'))
        rows.append(
            ('Decoding', f'up to {run_plan.expected_cpu_hours:.2g} hours on two CPU cores, estimated')
        )
    if run_plan.budget is not None:
        rows += _budget_rows(run_plan.budget)
    for name, value in rows:
        table.add_row(name, value)
    rich.console.Console().print(table)


def _budget_rows(answer: plan_lib.BudgetAnswer) -> list[tuple[str, str]]:
    """The ledger's answer as rows of the plan's table."""
    from models.privacy.report import format_down, format_exact, format_up

    if answer.is_charged:
        verdict = 'was charged already: resuming it is free'
    else:
        verdict = 'fits' if answer.fits else 'DOES NOT FIT: it would not start'
    left = f'ρ = {format_down(answer.rho_left)} left {"now" if not answer.fits else "after it"}'
    return [
        ('Budget', f'{answer.dataset}: {verdict}'),
        ('', f'ρ = {format_up(answer.rho_spent)} of {format_down(answer.rho_budget)} spent, {left}'),
        (
            '',
            f'which is ε = {format_down(answer.epsilon_left)} at δ = {format_exact(answer.delta)} '
            'for one more run',
        ),
    ]


def _silence_libraries() -> None:
    """Keeps TensorFlow's and Beam's chatter off a run's screen; what concerns the user stays."""
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '1')
    os.environ.setdefault('GRPC_VERBOSITY', 'ERROR')
    root = logging.getLogger()
    root.setLevel(logging.WARNING)
    # Beam says so of a library for BigQuery, which no run uses.
    root.addFilter(lambda record: not str(record.msg).startswith('apitools not found'))
    # A portable job's messages quote the errors of its steps, whose details `start.run` keeps.
    root.addFilter(lambda record: record.module != 'portable_runner')
    # It announces each service that it starts and ends.
    logging.getLogger('apache_beam.utils.subprocess_server').setLevel(logging.ERROR)
    # `beam_options` refuses what this one only warns of.
    logging.getLogger('apache_beam.options.pipeline_options').setLevel(logging.ERROR)
    # They print the traceback of a failed step, once for every layer. `start.run` keeps it
    # in the work directory, where a text that quotes data belongs.
    for name in ('common', 'worker', 'direct', 'portability.fn_api_runner'):
        logging.getLogger(f'apache_beam.runners.{name}').setLevel(logging.CRITICAL)


@contextlib.contextmanager
def _unquoted() -> Iterator[None]:
    """Hides the text of an unforeseen error over private texts, which may quote them (METHOD 8).

    Errors of the request are ours, or the operating system's, and quote none.
    """
    try:
        yield
    except (ValueError, OSError, ImportError, BudgetExceeded):
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, its text may quote records
        kind = type(error).__name__
    else:
        return
    raise RuntimeError(
        f'Expected the command to finish, got error={kind}, whose text may quote records and is not shown. '
        'Check the input and the settings.'
    ) from None


@contextlib.contextmanager
def _without_chatter() -> Iterator[None]:
    """Holds standard error back while native libraries load, then shows all of it but chatter.

    They write to the file descriptor before any of their settings counts. A crash would take
    what was held with it, so Python's own traceback of one goes to the screen directly.
    """
    sys.stderr.flush()
    with tempfile.TemporaryFile() as held, os.fdopen(os.dup(2), 'wb', buffering=0) as screen:
        had_faulthandler = faulthandler.is_enabled()
        faulthandler.enable(screen)
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(screen.fileno(), 2)
            faulthandler.disable()
            if had_faulthandler:
                faulthandler.enable()
            held.seek(0)
            screen.writelines(line for line in held if not _CHATTER.match(line))


def main() -> None:
    """Runs the command line; errors of the request print one line and exit with 2, of the budget with 3."""
    try:
        # A command's own `typer.Exit` comes back as its code.
        sys.exit(app(standalone_mode=False))
    except typer.Exit as stop:
        sys.exit(stop.exit_code)
    except typer.Abort:
        sys.exit(130)
    except BudgetExceeded as error:
        _fail(error, EXIT_BUDGET)
    except (ValueError, FileNotFoundError, FileExistsError, PermissionError) as error:
        _fail(error, EXIT_USAGE)
    except Exception as error:  # noqa: BLE001 - a run's own failure; usage errors of typer among them
        show = getattr(error, 'show', None)
        if show is not None:
            show()
            _fail(error, getattr(error, 'exit_code', EXIT_USAGE), shown=True)
        _fail(error, EXIT_FAILED)


def _fail(error: BaseException, code: int, *, shown: bool = False) -> typing.NoReturn:
    """Prints an error with its causes and ends; `shown` where the screen has it already."""
    causes, cause = [str(error)], error.__cause__
    while cause is not None:
        # Stated causes only: `start.run` states none for what a step raised over its data.
        if str(cause) not in causes[-1]:
            causes.append(f'{type(cause).__name__}: {cause}')
        cause = cause.__cause__
    text = '\n  because of '.join(causes)
    if '--json' in sys.argv:
        print(json.dumps({'error': text, 'exit_code': code}))
    if not shown:
        rich.console.Console(stderr=True).print(
            f'[red]Error:[/red] {rich.markup.escape(text)}', soft_wrap=True
        )
    sys.exit(code)


if __name__ == '__main__':
    main()
