"""`dp-corpus centers`: the centres of a public corpus, fitted once."""

import json
import pathlib
from typing import Annotated, Any, Literal

import typer

from pipeline import centers as centers_lib
from pipeline import embedder as embedder_lib
from pipeline import terminal
from pipeline.commands import flags, screen
from pipeline.settings.input import check_text_flags


def centers(
    input_: flags.InputFlag,
    output: Annotated[str, typer.Option('--output', help='New folder for the centres.')],
    text_field: flags.TextFieldFlag = 'text',
    delimiter: flags.DelimiterFlag = None,
    encoding: flags.EncodingFlag = None,
    quoting: flags.QuotingFlag = 'double',
    count: Annotated[int, typer.Option('--count', help='Number of centres.')] = 500,
    embedder: flags.EmbedderFlag = 'tfidf',
    source: Annotated[
        Literal['public', 'k-means', 'dp-k-means'],
        typer.Option(
            '--source',
            help='What the texts are and how centres are fitted. public: public texts, at no cost. '
            'dp-k-means: private texts, at the cost of --rho. k-means: private texts '
            'without privacy, for research only.',
        ),
    ] = 'public',
    rho: Annotated[float | None, typer.Option('--rho', help='Price of dp-k-means in zCDP.')] = None,
    dataset: Annotated[
        str | None, typer.Option('--dataset', help="Charge dp-k-means to this dataset's budget.")
    ] = None,
    ledger: Annotated[
        str | None, typer.Option('--ledger', help='Ledger with that budget: SQLite file, or postgresql://.')
    ] = None,
    run_id: Annotated[
        str | None,
        typer.Option('--run-id', help="Public name of the charge. Default: the output folder's name."),
    ] = None,
    seed: flags.SeedFlag = 0,
    model: flags.ModelFlag = 'bundled',
    checkpoint: flags.CheckpointFlag = None,
    tokenizer: flags.TokenizerFlag = None,
    dtype: flags.DtypeFlag = 'float32',
    as_json: flags.JsonFlag = False,
) -> None:
    """Fit the centres of a public corpus, for `generate --clusters`.

    Example: dp-corpus centers --input public.jsonl --output my-centers

    dp-corpus comes with centres of encyclopedia texts. Centres of a public corpus that is
    more like your records group them better. Choose that corpus without looking at the records.
    """
    check_text_flags([input_], delimiter=delimiter, encoding=encoding, quoting=quoting)
    screen.silence_libraries()
    with screen.without_chatter(), screen.unquoted():
        settings = embedder_lib.settings_of(
            embedder, model=model, checkpoint=checkpoint, tokenizer=tokenizer, dtype=dtype
        )
        centers_lib.check_fit(
            pathlib.Path(output), source=source, rho=rho, dataset=dataset, ledger=ledger, run_id=run_id
        )
        fields = centers_lib.text_fields(text_field, delimiter=delimiter, encoding=encoding, quoting=quoting)
        reservation = None
        if dataset is not None and ledger is not None and rho is not None:
            reservation = centers_lib.charge_fit(
                input_,
                pathlib.Path(output),
                dataset=dataset,
                ledger=ledger,
                run_id=run_id,
                fields=fields,
                settings=settings,
                count=count,
                rho=rho,
                seed=seed,
            )
        texts = centers_lib.read_texts(input_, fields)
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
    console = terminal.console()
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
