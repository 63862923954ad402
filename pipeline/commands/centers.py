"""`dp-corpus centers`: the centres of a public corpus, fitted once."""

import json
import pathlib
from typing import Annotated, Any

import typer

from models.clustering.centers import ClusterSettings
from pipeline.commands import flags
from pipeline.prepare import centers as centers_lib
from pipeline.screen import off_screen, terminal
from transforms.text_files import check_text_flags


def centers(
    input_: flags.InputFlag,
    output: Annotated[str, typer.Option('--output', help='New folder for the centres.')],
    text_field: flags.TextFieldFlag = 'text',
    delimiter: flags.DelimiterFlag = None,
    encoding: flags.EncodingFlag = None,
    quoting: flags.QuotingFlag = 'double',
    count: Annotated[int, typer.Option('--count', help='Number of centres.')] = 500,
    embedder: flags.EmbedderFlag = 'tfidf',
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
    off_screen.silence_libraries()
    with off_screen.without_chatter(), off_screen.unquoted():
        settings = ClusterSettings.of_embedder(
            embedder, model=model, checkpoint=checkpoint, tokenizer=tokenizer, dtype=dtype
        )
        centers_lib.check_folder(pathlib.Path(output))
        fields = centers_lib.text_fields(text_field, delimiter=delimiter, encoding=encoding, quoting=quoting)
        texts = centers_lib.read_texts(input_, fields)
        made = centers_lib.make_centers(
            texts, pathlib.Path(output), settings=settings, count=count, seed=seed
        )
    facts: dict[str, Any] = {
        'output': output,
        'count': made.count,
        'embedder': made.embedder,
        'fingerprint': made.fingerprint,
        'corpus_fingerprint': made.corpus_fingerprint,
        'corpus_texts': made.corpus_texts,
    }
    if as_json:
        print(json.dumps(facts, indent=2))
        return
    console = terminal.console()
    console.print(
        f'{made.count:,} centres of {made.corpus_texts:,} public texts by {made.embedder}: {output}',
        soft_wrap=True,
    )
