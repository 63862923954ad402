"""Settings of generation: prompts, public sampling, and lengths."""

import dataclasses
import functools

from models.privacy.aggregates import AGGREGATES
from pipeline.config import panel

_setting = functools.partial(panel.setting, 'Generation')

# Names of `models.prompts.PRESETS`, which takes NumPy along: --help answers at once.
PROMPT_PRESETS = (
    'document',
    'pretrained',
    'pretrained-json',
    'instruction',
    'instruction-pairs',
    'instruction-phrase',
    'instruction-json',
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Generation(panel.Panel):
    """What the model is asked for, and how long its answers may get."""

    prompt: str | None = _setting(
        f'Prompt preset ({", ".join(PROMPT_PRESETS)}), or a TOML file with private, public and example. '
        "Default: 'document', and 'pretrained' for the bundled model, which was trained on it. "
        'The instruction presets are for instruction-tuned weights.',
        None,
    )
    label_name: str = _setting("What prompts call the label, such as 'News Type'.", 'Label', names_path=False)
    text_name: str = _setting("What prompts call a text, such as 'Question'.", 'Text', names_path=False)
    corpus_description: str = _setting(
        "What the corpus is: the first line of prompts of the preset 'document', such as 'Abstracts of "
        "medical papers, one after another.' Public: never take it from the records.",
        'A collection of texts, one after another.',
        names_path=False,
    )
    schema: str | None = _setting('File with the text that stands for {schema} in a prompt.', None)
    public_temperature: float = _setting('Temperature of public tokens.', 1.5)
    public_top_k: int | None = _setting(
        'K: sample only from the K most probable public tokens, so that a step computes their logits alone; '
        '0 for the whole vocabulary. Default: '
        + ', '.join(
            f'{known.default_public_top_k or "the whole vocabulary"} for the {name}'
            for name, known in AGGREGATES.items()
        )
        + '.',
        None,
    )
    max_prompt_tokens: int = _setting('Length of a prompt; longer texts are cut.', 160)
    max_example_tokens: int = _setting('Length cap of one synthetic example.', 96)
    max_batch_tokens: int | None = _setting(
        'Cap on all tokens of a batch, public ones too. Default: r, or 8 r with --threshold; with '
        'individual accounting 16 times the tokens that any context is paid for, and 1024 at most.',
        None,
    )

    def check(self) -> None:
        # The mechanism checks its own settings (`MechanismParams`).
        self._check_positive('max_prompt_tokens')
        if self.public_top_k is not None and self.public_top_k < 0:
            raise ValueError(
                f'Expected public_top_k >= 0, got public_top_k={self.public_top_k}. Give a positive whole '
                'number, or 0 for the whole vocabulary.'
            )
