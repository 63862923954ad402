"""Settings of an evaluation: each is a flag of `dp-corpus evaluate` and a keyword of `dp_corpus.evaluate`."""

import dataclasses
import functools
import pathlib
from typing import Any

from models import fetched
from models.decoders import family
from models.decoders.device import RequestedDtype
from pipeline.evaluation.in_context.settings import InContextSettings
from pipeline.release import apart
from transforms.text_files import (
    DELIMITER_HELP,
    ENCODING_HELP,
    QUOTING_HELP,
    Encoding,
    Quoting,
    check_delimiter,
    check_text_flags,
)

PAGE, DOCUMENT = 'evaluation.html', 'evaluation.json'


def _setting(
    help_text: str, default: Any = None, *, panel: str | None = None, names_path: bool = False
) -> Any:
    """One setting; the metadata is that of a run's settings (`pipeline.settings.panel.setting`)."""
    metadata = {'panel': panel, 'help': help_text, 'choices': None, 'names_path': names_path}
    return dataclasses.field(default=default, metadata=metadata)


_of_prompts = functools.partial(_setting, panel='In-context use')


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluationSettings:
    """Settings of an evaluation beside the corpus itself. The help text of a field is its documentation.

    Raises:
        ValueError: Settings do not go together.
        FileNotFoundError: There is no folder that the output could lie in.
        FileExistsError: The output is there already.
    """

    output: str | None = _setting(
        f"New folder for {DOCUMENT} and {PAGE}. Default: one in the curator's folder of a run whose test "
        'part is found; else nothing is written.',
        names_path=True,
    )
    also: tuple[str, ...] = _setting('Another corpus to compare with, NAME=PATH; may be repeated.', ())
    name: str = _setting('Name of CORPUS in tables.', 'corpus')
    records: str | None = _setting('The sensitive records that the corpus was made from.', names_path=True)
    test: str | None = _setting(
        'Real texts that no run has read, such as the test part of `dp-corpus split`.', names_path=True
    )
    public: str | None = _setting(
        'Corpus sampled from the public prompt alone (epsilon 0), for comparison.', names_path=True
    )
    delimiter: str | None = _setting(DELIMITER_HELP)
    encoding: Encoding | None = _setting(ENCODING_HELP)
    quoting: Quoting = _setting(QUOTING_HELP, 'double')
    text_field: str = _setting('Column of the text.', 'text')
    label_field: str | None = _setting(
        'Column of the label in files. If it is an attribute of the run that wrote CORPUS, the values of '
        'that attribute are the labels of the corpus.'
    )
    attributes: tuple[str, ...] = _setting(
        'Columns whose values together are the label, comma-separated, as in a run with several attributes. '
        'Instead of --label-field.',
        (),
    )
    unit_field: str | None = _setting(
        'Column of the unit of privacy in --records and --test. The holdout test then reads one text of each '
        'unit.'
    )
    embedder: str = _setting(
        'tfidf, minilm, decoder, or a folder of MiniLM weights.', 'tfidf', names_path=True
    )
    embedder_model: str = _setting(
        'Model, such as gemma3-270m, whose hidden states --embedder decoder takes. For texts that records '
        'voted for, take an embedder that did not vote.',
        'bundled',
    )
    only: tuple[str, ...] | None = _setting('Measures, comma-separated. Default: all.')
    json_schema: str | None = _setting('JSON Schema that each text should fit.', names_path=True)
    in_context_model: str | None = _of_prompts(
        'Model, such as gemma3-270m, that sees a few texts of the corpus and then labels test texts.'
    )
    checkpoint: str | None = _of_prompts(
        'Its GGUF file, safetensors folder or Orbax directory.', names_path=True
    )
    tokenizer: str | None = _of_prompts(
        'Its SentencePiece file or tokenizer.json; a GGUF file has its own.', names_path=True
    )
    dtype: RequestedDtype | None = _of_prompts('Type of its weights and products. Default: auto.')
    in_context_labels: tuple[str, ...] | None = _of_prompts(
        'Labels, comma-separated. VALUE=WORDS gives the words for a label in prompts. Default: those of '
        '--test.'
    )
    in_context_examples: int | None = _of_prompts('Texts of each label in a prompt. Default: 1.')
    in_context_orders: int | None = _of_prompts(
        'Average over so many orders of the examples, or over all if there are fewer. Default: 8.'
    )
    in_context_texts: int | None = _of_prompts(
        'Test texts to label, drawn at random if there are more. Default: 100.'
    )
    seed: int = _setting('Seed of every random draw.', 0)

    def __post_init__(self) -> None:
        if self.output is not None:
            apart.check_folder(pathlib.Path(self.output))
        check_delimiter(self.delimiter, self.quoting)
        _ = self.other_corpora
        model = self.embedder_model
        if model == 'bundled':
            return
        if self.embedder != 'decoder':
            raise ValueError(
                f"Expected a model with embedder='decoder' only, got embedder={self.embedder!r}, "
                f'embedder_model={model!r}. Add --embedder decoder, or leave the model out.'
            )
        if family.family_of(model).known_files(model) is None:
            raise ValueError(
                f'Expected a model whose weights are here, got embedder_model={model!r}. Leave it out for '
                f'the bundled one, or give {fetched.MODEL} after dp-corpus models fetch {fetched.MODEL}.'
            )

    @property
    def other_corpora(self) -> tuple[tuple[str, str], ...]:
        """(name, place) of each other corpus.

        Raises:
            ValueError: One has another form than NAME=PATH.
        """
        pairs = []
        for text in self.also:
            name, equals, path = text.partition('=')
            if not (name and equals and path):
                raise ValueError(
                    f'Expected NAME=PATH, got --also {text!r}. Give the corpus a name for its column.'
                )
            pairs.append((name, path))
        return tuple(pairs)

    def check_places(self, corpus: str) -> None:
        """Refuses flags of files of text where no place is of their kind.

        Raises:
            ValueError: See above.
        """
        places = [corpus, *(place for _, place in self.other_corpora)]
        places += [place for place in (self.records, self.test, self.public) if place is not None]
        check_text_flags(places, delimiter=self.delimiter, encoding=self.encoding, quoting=self.quoting)

    @property
    def in_context(self) -> InContextSettings | None:
        """The decoder for in-context use; None without a model.

        Raises:
            ValueError: There is a setting of it but no model, or one is out of range.
        """
        values: dict[str, Any] = {
            'checkpoint': self.checkpoint,
            'tokenizer': self.tokenizer,
            'dtype': self.dtype,
            'labels': self.in_context_labels,
            'examples_per_label': self.in_context_examples,
            'most_orders': self.in_context_orders,
            'most_test_texts': self.in_context_texts,
        }
        values = {name: value for name, value in values.items() if value is not None}
        if self.in_context_model is not None:
            return InContextSettings(model=self.in_context_model, **values)
        if values:
            raise ValueError(
                f'Expected a model with {", ".join(values)}, got in_context_model=None. Give '
                '--in-context-model, or leave them out.'
            )
        return None
