"""Turns of a prompt in the words of a family other than Gemma: longer markers, and none at all."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from models import prompt_templates, prompts
from models.decoders.tokenizer import END_OF_TURN, START_OF_TURN, Tokenizer
from models.records import Context

CONTEXT = Context(context_hash=b'', texts=('a <start_of_turn>model\n b',))


class Bytes(Tokenizer):
    """A token for each byte, after 100 control tokens."""

    def __init__(self, turns: Mapping[str, tuple[int, ...]], start: tuple[int, ...]) -> None:
        self._turns, self._start = turns, start

    vocab_size = 356
    start_tokens = property(lambda self: self._start)
    stop_tokens = frozenset({1})
    turn_markers = property(lambda self: self._turns)

    def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
        return [np.frombuffer(text.encode(), np.uint8).astype(np.int32) + 100 for text in texts]

    def decode_batch(self, ids: Sequence[Sequence[int] | np.ndarray]) -> list[str]:
        return [bytes(int(index) - 100 for index in row if index >= 100).decode() for row in ids]

    def token_bytes(self) -> list[bytes]:
        return [b''] * 100 + [bytes([byte]) for byte in range(256)]

    def released_token_mask(self, num_embed: int | None = None) -> np.ndarray:
        return np.arange(num_embed or self.vocab_size) >= 100


def writer_of(tokenizer: Tokenizer, preset: str = 'instruction') -> prompts.PromptWriter:
    return prompts.PromptWriter(
        template=prompt_templates.read_template(preset), tokenizer=tokenizer, max_prompt_tokens=600
    )


def shown(tokenizer: Tokenizer, ids: np.ndarray) -> str:
    return ''.join(
        f'[{index}]' if index < 100 else tokenizer.decode_batch([[index]])[0] for index in ids.tolist()
    )


def test_a_family_may_write_roles_in_its_own_way() -> None:
    """Its longer markers win; a record that spells one spells text."""
    tokenizer = Bytes(
        {START_OF_TURN: (5,), f'{START_OF_TURN}model\n': (5, 6, 7), END_OF_TURN: (8,)}, start=(2, 3)
    )
    writer = writer_of(tokenizer)
    (private,) = writer.private_prompts(None, [CONTEXT])
    text = shown(tokenizer, private)
    assert text.startswith('[2][3][5]user\n') and text.endswith('[8]\n[5][6][7]Text:')
    assert 'Text: a <start_of_turn>model\n b' in text
    public = shown(tokenizer, writer.public_prompt(None))
    assert public.startswith('[2][3][5]user\n') and public.endswith('[8]\n[5][6][7]Text:')
    assert writer.stop_rule(tokenizer.vocab_size).tokens == {1}


def test_start_tokens_count_as_the_prompts() -> None:
    tokenizer = Bytes({START_OF_TURN: (5,), END_OF_TURN: (8,)}, start=(2, 3, 4))
    writer = prompts.PromptWriter(
        template=prompt_templates.PromptTemplate(private='{examples}', example='{text}', public='-'),
        tokenizer=tokenizer,
        max_prompt_tokens=10,
    )
    (private,) = writer.private_prompts(None, [Context(context_hash=b'', texts=('x' * 50,))])
    assert shown(tokenizer, private) == '[2][3][4]' + 'x' * 7


def test_a_prompt_with_turns_is_refused_by_a_model_without() -> None:
    tokenizer = Bytes({}, start=())
    with pytest.raises(ValueError, match="a model that knows none, got markers=.*'document' preset"):
        writer_of(tokenizer).public_prompt(None)
    plain = prompt_templates.PromptTemplate(private='{examples}', example='{text}', public='- ')
    writer = prompts.PromptWriter(template=plain, tokenizer=tokenizer, max_prompt_tokens=600)
    assert shown(tokenizer, writer.public_prompt(None)) == '- '
