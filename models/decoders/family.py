"""Families of decoders, and their table: a model's name leads to its family's weights, tokenizer and decoder.

A family is a folder beside this file, behind `Decoder` and `Tokenizer`, and one line in
`models/decoders/__init__.py`. A family of transformers is the numbers of its models, the names of their
tensors and a tokenizer: `models.decoders.transformer` does the rest. Every family must pass the contract of
tests/contracts/decoder_contract.py. Its most important part is that rows are independent: the guarantee
depends on it.

The command line lists the models in its help, so importing this file, or a `Family`, imports neither JAX nor
a model library: they are imported when a model is loaded.
"""

import abc
import dataclasses
import difflib
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import jax

    from models.decoders.decoder import Decoder, Shapes
    from models.decoders.tokenizer import Tokenizer


# Matrix kernels take rows in blocks and treat a remainder otherwise. In whole blocks a
# row's logits are the same bits wherever the row lies, so that one context more or less
# moves no other row (METHOD 4). Widths of all named models are whole vectors of a processor:
# where parts of two rows share one, code that rounds otherwise may compute the last row.
ROWS_MULTIPLE = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sizes(abc.ABC):
    """Facts about a model before it is loaded. A family adds the numbers that define its models.

    Attributes:
        num_embed: Vocabulary size V of the model, at least the tokenizer's.
        embed_dim: Width D of the residual stream, the length of a hidden state.
    """

    num_embed: int
    embed_dim: int

    @property
    @abc.abstractmethod
    def num_parameters(self) -> int:
        """Exact number of weights."""

    @abc.abstractmethod
    def gradient_bytes(self, tokens: int, length: int, *, remat: bool) -> int:
        """Bytes of what layers compute and a gradient reads again on its way back, as compilers hold it.

        Args:
            tokens: Number of tokens of all rows together.
            length: Tokens that one of them attends to at the most.
            remat: True if each layer is computed again, in place of being kept.
        """

    @abc.abstractmethod
    def adapter_parameters(self, rank: int | None) -> int:
        """Numbers of an adapter of factors of a rank, or with None of a difference of all weights."""

    @abc.abstractmethod
    def cache_bytes_per_token(self, dtype_bytes: int) -> int:
        """Bytes of a row's slot in the decoder's cache, over all layers; a number has `dtype_bytes`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelFiles:
    """The files of a model; the tokenizer's may be that of the weights."""

    checkpoint: str
    tokenizer: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Origin:
    """Who made a model's weights, and under which terms they may be used.

    Attributes:
        name: The model's name as its makers write it.
        terms: The terms of use, with the place of their text.
    """

    name: str
    maker: str
    terms: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pooling:
    """A loaded model as an encoder of texts, for embeddings.

    Attributes:
        weights: The model's parameters, an argument of `pool`.
        pool: A function of the parameters, tokens `[m L]` int32 that each begin with the
            tokenizer's start tokens, and lengths `[m]` that count those; gives the mean
            hidden state of each text's own tokens, `[m D]` float32. Every row is computed
            on its own.
    """

    weights: Any
    pool: 'Callable[[Any, jax.typing.ArrayLike, jax.typing.ArrayLike], jax.Array]'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tunable:
    """A loaded model for fine-tuning: its weights are frozen, and an adapter is added to them.

    Attributes:
        weights: The model's parameters, an argument of `log_probabilities`.
        products: A function of the weights, an adapter (a tree of arrays as `Family.adapter_shapes` says)
            and the tokens of instructions `[G P]` int32; gives a tree of arrays `[G ...]`: what
            `log_probabilities` need not compute again for each row.
        log_probabilities: A differentiable function of the weights, an adapter, a pair of instructions `[w
            P]` int32 and their lengths `[w]` int32, at least 1, and texts `[c T]` int32; gives `[c w T]`
            float32: what the model, with the adapter, says of each token of each text after each
            instruction, after all tokens before it. Rows are computed each on its own, and what lies behind
            a token changes nothing. A last argument, the rows of `products` of the same adapter, saves
            time; values and gradients are the same but by rounding.
    """

    weights: Any
    products: 'Callable[[Any, Any, jax.Array], Any]'
    log_probabilities: 'Callable[..., jax.Array]'


class Family(abc.ABC):
    """One kind of decoder. Stateless; models are loaded by name from files."""

    name: str

    @property
    @abc.abstractmethod
    def models(self) -> Mapping[str, Sizes]:
        """Models by the name that `--model` takes; no two families share one."""

    @abc.abstractmethod
    def origin(self, model: str) -> Origin:
        """Whose weights they are and under which terms, for reports."""

    @abc.abstractmethod
    def known_files(self, model: str) -> ModelFiles | None:
        """Paths of the model's files if the user names none; None for a model that users bring.

        The package ships them, or a command puts them there; they need not be there yet.
        """

    @abc.abstractmethod
    def tokenizer_within(self, checkpoint: str) -> str | None:
        """The tokenizer that comes with the weights, as far as their path tells; None if none does."""

    def answers_turns(self, checkpoint: str) -> bool | None:
        """True if weights were tuned to answer in turns of a chat, as far as their files tell; else None.

        Raises:
            ValueError: A file is damaged.
        """
        return None

    @abc.abstractmethod
    def check_files(self, model: str, files: ModelFiles) -> None:
        """Refuses files that are not this model's, as far as can be told without loading it.

        Files on a remote file system are left to the loading.

        Raises:
            FileNotFoundError: A file is not there.
            ValueError: The checkpoint is another model's.
        """

    @abc.abstractmethod
    def load_decoder(
        self,
        model: str,
        checkpoint: str | os.PathLike[str],
        *,
        shapes: 'Shapes',
        dtype: str,
        adapter: Any | None = None,
    ) -> 'Decoder':
        """Loads the weights and places them on the local devices.

        Args:
            model: One of `models`.
            checkpoint: Folder or file of the weights.
            shapes: The public shapes.
            dtype: 'float32' or 'bfloat16'.
            adapter: Numbers added to the weights, a tree of arrays as `adapter_shapes` says; None for the
                model as it is.

        Raises:
            FileNotFoundError: There is no such checkpoint.
            ValueError: The checkpoint is another model's.
        """

    @abc.abstractmethod
    def adapter_shapes(self, model: str, rank: int | None) -> Any:
        """A tree of `jax.ShapeDtypeStruct` of float32: what is trained, and added to frozen weights.

        Factors of a rank r (LoRA: Hu et al. 2021) come in pairs of leaves that are named `down` `[A r]` and
        `up` `[r B]`, for a matrix `[A B]`. None is a difference of all weights, the embedding and norms too:
        one leaf of each weight's shape.
        """

    @abc.abstractmethod
    def load_tunable(
        self, model: str, checkpoint: str | os.PathLike[str], *, dtype: str, remat: bool = False
    ) -> Tunable:
        """Loads the weights for fine-tuning; arguments and errors as of `load_decoder`.

        With `remat` a gradient computes again what each layer computes, in place of keeping it.
        """

    @abc.abstractmethod
    def load_tokenizer(self, model: str, path: str | os.PathLike[str]) -> 'Tokenizer':
        """The model's tokenizer. The file may be read later, when first needed."""

    @abc.abstractmethod
    def load_pooling(self, model: str, checkpoint: str | os.PathLike[str], *, dtype: str) -> Pooling:
        """Loads the weights for embedding texts; arguments and errors as of `load_decoder`."""


FAMILIES: dict[str, Family] = {}


def register(family: Family) -> Family:
    """Adds a family to the table; the single registration that a family needs.

    Raises:
        ValueError: The family's name, or the name of one of its models, is taken.
    """
    taken = sorted(family.models.keys() & set(model_names()))
    if family.name in FAMILIES or taken:
        raise ValueError(
            f'Expected new names of a family and its models, got name={family.name!r}, models={taken}. '
            'Give the family, and each of its models, a name of its own.'
        )
    FAMILIES[family.name] = family
    return family


def model_names() -> tuple[str, ...]:
    """All models of all families, in the order of their registration."""
    return tuple(name for family in FAMILIES.values() for name in family.models)


def family_of(model: str) -> Family:
    """The family of a model.

    Raises:
        ValueError: No family has a model of this name.
    """
    for family in FAMILIES.values():
        if model in family.models:
            return family
    names = model_names()
    near = difflib.get_close_matches(model, names, 1)
    hint = f' Did you mean {near[0]}?' if near else ''
    raise ValueError(f'Expected a model among {", ".join(names)}, got model={model!r}.{hint}')


def sizes_of(model: str) -> Sizes:
    """The sizes of a model by its name.

    Raises:
        ValueError: No family has a model of this name.
    """
    return family_of(model).models[model]


def files_of(model: str, checkpoint: str | None = None, tokenizer: str | None = None) -> ModelFiles:
    """A model's files: those given, else those of the weights, else those that the family knows of.

    Raises:
        ValueError: No family has a model of this name, or its files must be given.
    """
    family = family_of(model)
    known = family.known_files(model)
    if checkpoint is None and known is not None:
        checkpoint = known.checkpoint
    if tokenizer is None and checkpoint is not None:
        tokenizer = family.tokenizer_within(checkpoint)
        if tokenizer is None and known is not None:
            tokenizer = known.tokenizer
    if checkpoint is None or tokenizer is None:
        raise ValueError(
            f'Expected a checkpoint and a tokenizer for model={model!r}, got '
            f'checkpoint={checkpoint!r}, tokenizer={tokenizer!r}. '
            'Give local paths with --checkpoint and --tokenizer, a GGUF file with --checkpoint alone, '
            'or use --model bundled.'
        )
    return ModelFiles(checkpoint=checkpoint, tokenizer=tokenizer)
