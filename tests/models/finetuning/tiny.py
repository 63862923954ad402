"""A real Gemma of a few thousand random weights, with bytes for tokens: training and sampling in seconds.

It needs neither the gemma library nor TensorFlow: its weights are drawn here, and its tokenizer reads bytes.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.decoders import family
from models.decoders.gemma import architectures
from models.decoders.gemma import family as gemma_family
from models.decoders.tokenizer import Tokenizer
from models.decoders.transformer.checkpoint import Place
from models.decoders.transformer.weights import Layer, Weights, adapter_shapes
from models.finetuning.settings import TuningSettings
from models.privacy.gradients import TuningParams
from models.prompt_templates import PromptTemplate

EOS, BOS, FIRST_BYTE = 1, 2, 4
ARCHITECTURE = architectures.GemmaArchitecture(
    num_embed=260, embed_dim=16, hidden_dim=24, num_heads=2, head_dim=8, num_kv_heads=1,
    attention_types=('local', 'global'), generation='3', sliding_window_size=8, use_qk_norm=True,
)  # fmt: skip
TEMPLATE = PromptTemplate(
    private='{examples}\n{label}:', example='{label}:{text};\n', public='{label}:', stop=(';',)
)


def weights(seed: int = 0) -> Weights:
    rng, a = np.random.default_rng(seed), ARCHITECTURE

    def of(*shape: int) -> jax.Array:
        return jnp.asarray(rng.normal(size=shape) / np.sqrt(shape[0]), jnp.float32)

    def norm(size: int) -> jax.Array:
        return jnp.asarray(0.1 * rng.normal(size=size), jnp.float32)

    layers = tuple(
        Layer(
            pre_attention_norm=norm(a.embed_dim),
            query_key_value=of(a.embed_dim, (a.num_heads + 2 * a.num_kv_heads) * a.head_dim),
            query_norm=norm(a.head_dim),
            key_norm=norm(a.head_dim),
            attention_output=of(a.num_heads * a.head_dim, a.embed_dim),
            post_attention_norm=norm(a.embed_dim),
            pre_ffw_norm=norm(a.embed_dim),
            gate_up=of(a.embed_dim, 2 * a.hidden_dim),
            down=of(a.hidden_dim, a.embed_dim),
            post_ffw_norm=norm(a.embed_dim),
        )
        for _ in a.attention_types
    )
    # Rows that are long enough for logits to tell tokens apart.
    embedding = jnp.asarray(rng.normal(size=(a.num_embed, a.embed_dim)), jnp.float32)
    return Weights(embedding=embedding, layers=layers, final_norm=norm(a.embed_dim))


def adapter(rank: int | None = 2, seed: int = 1) -> Any:
    rng = np.random.default_rng(seed)
    shapes = adapter_shapes(ARCHITECTURE, rank)
    size = 0.1 if rank is None else 0.3
    return jax.tree.map(lambda leaf: jnp.asarray(size * rng.normal(size=leaf.shape), jnp.float32), shapes)


class Bytes(Tokenizer):
    """Every byte is a token."""

    vocab_size = 260
    start_tokens = (BOS,)
    stop_tokens = frozenset({EOS})
    turn_markers: Mapping[str, tuple[int, ...]] = {}

    def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
        return [
            np.frombuffer(text.encode(errors='replace'), np.uint8).astype(np.int32) + FIRST_BYTE
            for text in texts
        ]

    def decode_batch(self, ids: Sequence[Sequence[int] | np.ndarray]) -> list[str]:
        return [
            bytes(token - FIRST_BYTE for token in row if token >= FIRST_BYTE).decode(errors='replace')
            for row in ids
        ]

    def token_bytes(self) -> list[bytes]:
        return [b''] * FIRST_BYTE + [bytes([byte]) for byte in range(256)]

    def released_token_mask(self, num_embed: int | None = None) -> np.ndarray:
        mask = np.zeros(num_embed or self.vocab_size, bool)
        mask[EOS] = mask[FIRST_BYTE + 32 : FIRST_BYTE + 127] = True
        return mask


class Tiny(gemma_family.GemmaFamily):  # type: ignore[misc]
    """The family of one model, `tiny`, whose weights are in no file."""

    name = 'tiny'

    @property
    def models(self) -> Mapping[str, architectures.GemmaArchitecture]:
        return {'tiny': ARCHITECTURE}

    def origin(self, model: str) -> family.Origin:
        return family.Origin(name='tiny', maker='this test', terms='none')

    def known_files(self, model: str) -> family.ModelFiles:
        return family.ModelFiles(checkpoint=__file__, tokenizer=__file__)

    def check_files(self, model: str, files: family.ModelFiles) -> None:
        pass

    def load_weights(self, model: str, checkpoint: Any, place: Place) -> Weights:
        return weights()

    def load_tokenizer(self, model: str, path: Any) -> Any:
        return Bytes()


@contextlib.contextmanager
def known() -> Iterator[None]:
    """The family is in the table meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(family, 'FAMILIES', dict(family.FAMILIES))
        family.register(Tiny())
        yield


def settings(**changed: Any) -> TuningSettings:
    params = TuningParams(
        units=40.0, expected_batch_size=8, tuning_steps=6, clip_norm=1.0, noise_multiplier=0.5,
        unit='user', examples_per_context=2,
    )  # fmt: skip
    given = {
        'run_id': 'tiny', 'params': params, 'labels': ('a', 'b', 'c'), 'model': 'tiny', 'checkpoint': '',
        'tokenizer': '', 'dtype': 'float32', 'micro_batch_size': 3, 'max_prompt_tokens': 16,
        'max_example_tokens': 12, 'template': TEMPLATE, 'lora_rank': 2, 'texts_of_labels': (4, 4, 4),
    }  # fmt: skip
    return TuningSettings(**(given | changed))
