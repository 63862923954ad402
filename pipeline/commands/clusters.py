"""`dp-corpus clusters`: ways to cluster the records, compared for the curator."""

import pathlib
from typing import Annotated

import typer

from pipeline import centers as centers_lib
from pipeline import curator_files, terminal
from pipeline import embedder as embedder_lib
from pipeline.commands import flags, screen
from pipeline.settings.input import check_text_flags


def clusters(
    input_: flags.InputFlag,
    output: Annotated[
        str, typer.Option('--output', help='New .html or .json file, restricted to the curator.')
    ],
    text_field: flags.TextFieldFlag = 'text',
    delimiter: flags.DelimiterFlag = None,
    encoding: flags.EncodingFlag = None,
    quoting: flags.QuotingFlag = 'double',
    centers_folder: Annotated[
        str | None, typer.Option('--centers', help="Folder of public centres. Default: the package's.")
    ] = None,
    embedder: flags.EmbedderFlag = 'tfidf',
    kept: Annotated[int, typer.Option('--clusters', help='Number of centres that rebalancing keeps.')] = 100,
    count: Annotated[int, typer.Option('--count', help='Number of clusters of k-means.')] = 500,
    rho: Annotated[float, typer.Option('--clustering-rho', help='zCDP cost of each private method.')] = 0.005,
    delta: Annotated[
        float, typer.Option('--delta', help='delta at which that cost is shown as epsilon.')
    ] = 1e-6,
    seed: flags.SeedFlag = 0,
    model: flags.ModelFlag = 'bundled',
    checkpoint: flags.CheckpointFlag = None,
    tokenizer: flags.TokenizerFlag = None,
    dtype: flags.DtypeFlag = 'float32',
    as_json: flags.JsonFlag = False,
) -> None:
    """Compare ways to cluster the records: k-means, DP k-means, public centres, rebalanced ones.

    Example: dp-corpus clusters --input records.csv --output clusters.html

    For research, and for the curator alone: the output holds true figures of private
    records, without noise. Never publish it or put it beside a corpus.
    """
    path = pathlib.Path(output)
    curator_files.check(path, curator_files.PAGE_OR_JSON)
    check_text_flags([input_], delimiter=delimiter, encoding=encoding, quoting=quoting)
    screen.silence_libraries()
    with screen.without_chatter(), screen.unquoted():
        settings = embedder_lib.settings_of(
            embedder,
            folder=centers_folder,
            model=model,
            checkpoint=checkpoint,
            tokenizer=tokenizer,
            dtype=dtype,
        )
        # Loads scikit-learn: errors of the request come before.
        from pipeline import clusters as clusters_lib
        from pipeline.pages import clusters_page

        fields = centers_lib.text_fields(text_field, delimiter=delimiter, encoding=encoding, quoting=quoting)
        clusterer = settings.build()
        texts = centers_lib.read_texts(input_, fields)
        comparison = clusters_lib.compare_clusterings(
            centers_lib.embed_all(clusterer.embedder, texts),
            centers=clusterer.centers,
            count=count,
            kept=kept,
            rho=rho,
            delta=delta,
            seed=seed,
        )
    clusters_page.write(comparison, path)
    if as_json:
        print(comparison.to_json(), end='')
    else:
        clusters_page.render_terminal(comparison, terminal.console())
