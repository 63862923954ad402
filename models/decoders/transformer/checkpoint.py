"""The parts of a checkpoint's tensors that make each weight, and the refusal of tensors of another model.

The tensors of a format are matched with an architecture as a tree of `Part`s in the form of `Weights`. Files
say their tensors' names and shapes before any number is read, so both are compared first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from etils import epy

from models.decoders.transformer.architecture import Architecture
from models.decoders.transformer.weights import Weights, tree

with epy.lazy_imports():
    import jax
    import jax.numpy as jnp
    import numpy as np

# Items that an error lists before it only counts.
LISTED = 3
REMEDY = 'Choose the model that the checkpoint was made for.'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    """One weight, and how it is made of a checkpoint's tensors.

    Attributes:
        sources: Shapes of the tensors by name.
        arrange: Makes the weight of those tensors, in their order.
    """

    sources: Mapping[str, tuple[int, ...]]
    arrange: Callable[..., Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Names:
    """Names of a model's tensors in a format that stores matrices as `[outputs inputs]`, each by itself.

    Names of a layer's tensors have `{}` for its number; a model without a tensor needs no name for it.

    Attributes:
        others: Names of further tensors by their fields of the weights. In those of copies of the residual
            stream {} is the number of a copy; a name without it is of all of them in one tensor.
        unread: Beginnings of names of tensors that change no logit.
        norms_hold_one: True if norms are stored with the 1 of `Architecture.norms_add_one` added.
        table_rows: Rows that a file's tables may have in place of V. Rows that it lacks become zeros,
            and further ones are cut off, so no token of a text may be among them.
    """

    embedding: str
    final_norm: str
    output: str
    query: str
    key: str
    value: str
    attention_output: str
    gate: str
    up: str
    down: str
    pre_attention_norm: str
    pre_ffw_norm: str
    post_attention_norm: str = ''
    post_ffw_norm: str = ''
    query_norm: str = ''
    key_norm: str = ''
    others: Mapping[str, str] = dataclasses.field(default_factory=dict)
    unread: tuple[str, ...] = ()
    norms_hold_one: bool = False
    table_rows: tuple[int, ...] = ()

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables' names, of which one may be of no model."""
        return (self.embedding, self.output, self.others.get('per_layer_embedding', ''))


@dataclasses.dataclass(frozen=True)
class Place:
    """Puts weights where they are to lie, one after another, so that none lies in memory twice for long.

    Attributes:
        shardings: Their devices, by one sharding for all or the tree of each weight's; None for the first
            device.
    """

    dtype: jax.typing.DTypeLike
    shardings: jax.sharding.NamedSharding | Weights | None = None


def parts(architecture: Architecture, names: Names, shapes: Mapping[str, tuple[int, ...]]) -> Weights:
    """The parts of each weight, in the tree of the weights; `shapes` are those of the file's tensors."""
    a = architecture
    # The 1 is taken off before the type is narrowed: 1 + w has fewer digits left for w.
    one = np.float32(names.norms_hold_one)

    def part(field: str, index: int, shape: tuple[int, ...]) -> Part:
        layer = a.layers[index]
        heads = {names.query: a.num_heads}
        if layer.has_keys:
            heads |= {names.key: layer.num_kv_heads}
            heads |= {} if layer.values_are_keys else {names.value: layer.num_kv_heads}
        # Outputs of the stored matrices that make one of ours.
        outputs = {
            'query_key_value': {name: count * layer.head_dim for name, count in heads.items()},
            'attention_output': {names.attention_output: a.embed_dim},
            'gate_up': {names.gate: layer.hidden_dim, names.up: layer.hidden_dim},
            'down': {names.down: a.embed_dim},
        }
        if field in outputs:
            return Part(
                sources={name.format(index): (size, shape[0]) for name, size in outputs[field].items()},
                arrange=lambda *stored: np.concatenate(stored).T,
            )
        name = names.others[field] if field in names.others else getattr(names, field)
        if field in ('altup_copying', 'altup_joining'):
            return _copies(name, shape)
        name = name.format(index)
        if field in ('embedding', 'output', 'per_layer_embedding'):
            rows = shapes.get(name, shape)[0]
            stored_rows = rows if rows in names.table_rows else a.num_embed
            return Part(
                sources={name: (stored_rows, shape[1])},
                arrange=lambda stored: _with_rows(stored, a.num_embed),
            )
        if field in ('experts_gate_up', 'experts_down', 'altup_prediction'):
            return _blocks(a, field, name, shape)
        if len(shape) == 2:
            return Part(sources={name: shape[::-1]}, arrange=lambda stored: stored.T)
        return Part(sources={name: shape}, arrange=lambda norm: norm - one if one else norm)

    return tree(a, part)


def _copies(name: str, shape: tuple[int, ...]) -> Part:
    """Matrices `[A - 1 D D]` of copies, stored as one tensor or each by itself."""
    if '{}' not in name:
        return Part(sources={name: shape}, arrange=lambda stored: stored.transpose(0, 2, 1))
    return Part(
        sources={name.format(number): shape[1:] for number in range(shape[0])},
        arrange=lambda *stored: np.stack(stored).transpose(0, 2, 1),
    )


def _blocks(a: Architecture, field: str, name: str, shape: tuple[int, ...]) -> Part:
    """Weights that are stored in blocks: one for each expert, or one matrix of coefficients."""
    if field == 'altup_prediction':
        return Part(
            sources={name: (shape[1] * shape[2], shape[0])}, arrange=lambda stored: stored.T.reshape(shape)
        )
    experts = a.experts
    if experts is None:
        raise ValueError(
            f'Expected an architecture with experts for field={field!r}, got experts=None. Give it.'
        )
    if field == 'experts_down':
        stored_shape = (experts.count, a.embed_dim, experts.hidden_dim)
        return Part(
            sources={name: stored_shape}, arrange=lambda stored: stored.transpose(0, 2, 1).reshape(shape)
        )
    halves = (experts.count, 2, experts.hidden_dim, a.embed_dim)
    return Part(
        sources={name: (experts.count, 2 * experts.hidden_dim, a.embed_dim)},
        arrange=lambda stored: stored.reshape(halves).transpose(3, 1, 0, 2).reshape(shape),
    )


def _with_rows(table: Any, rows: int) -> Any:
    """Cut, or padded with zeros; itself where nothing is to do."""
    if len(table) == rows:
        return table
    return table[:rows] if len(table) > rows else np.pad(table, ((0, rows - len(table)), (0, 0)))


def read(parts: Weights, tensor: Callable[[str], Any], place: Place) -> Weights:
    """The weights, made one after another."""

    of_each, structure = jax.tree.flatten(parts)
    is_tree = isinstance(place.shardings, Weights)
    shardings = jax.tree.leaves(place.shardings) if is_tree else [place.shardings] * len(of_each)
    placed = [
        jax.device_put(jnp.asarray(part.arrange(*map(tensor, part.sources)), place.dtype), sharding)
        for part, sharding in zip(of_each, shardings, strict=True)
    ]
    weights: Weights = jax.tree.unflatten(structure, placed)
    return weights


def sources(parts: Weights) -> dict[str, tuple[int, ...]]:
    """Shapes of all tensors by name."""
    return {name: shape for part in jax.tree.leaves(parts) for name, shape in part.sources.items()}


def check_shapes(
    shapes: Mapping[str, tuple[int, ...]],
    expected: Mapping[str, tuple[int, ...]],
    *,
    ignored: Sequence[str] = (),
) -> None:
    """Refuses a checkpoint whose tensors' shapes, by name, are not those of an architecture.

    Names that begin with one of `ignored` are no weight of the text model.

    Raises:
        ValueError: Names the first tensors that are missing, surplus or of another shape, and counts them.
    """
    if missing := sorted(expected.keys() - shapes.keys()):
        raise ValueError(
            f'Expected every weight of the model, got none for names={listed(missing)}. {REMEDY}'
        )
    surplus = sorted(name for name in shapes.keys() - expected.keys() if not name.startswith(tuple(ignored)))
    if surplus:
        raise ValueError(f'Expected no further weights, got names={listed(surplus)}. {REMEDY}')
    misshapen = [
        f'{name}: expected {shape}, found {shapes[name]}'
        for name, shape in expected.items()
        if shapes[name] != shape
    ]
    if misshapen:
        raise ValueError(f'Expected weights in the shapes of the model, got {listed(misshapen)}. {REMEDY}')


def listed(items: Sequence[str]) -> str:
    """The first few, and how many more there are."""
    more = f' and {len(items) - LISTED} more' if len(items) > LISTED else ''
    return '; '.join(items[:LISTED]) + more


def refuse_numbers[A: Architecture](
    architecture: A, models: Mapping[str, A], differences: Callable[[A], Sequence[str]]
) -> None:
    """Refuses a checkpoint that says other numbers than an architecture's, which `differences` has in words.

    Raises:
        ValueError: The numbers that differ, and the model that has the checkpoint's numbers.
    """
    if complaints := differences(architecture):
        fitting = [name for name, known in models.items() if not differences(known)]
        remedy = f'Its numbers are those of --model {" or ".join(fitting)}.' if fitting else REMEDY
        raise ValueError(f'Expected the numbers of the chosen model, got {listed(complaints)}. {remedy}')


def differences_of_sizes(
    architecture: Architecture, *, layers: int | None, width: int | None, hidden: int | None
) -> list[str]:
    """Depth and widths of a checkpoint that are not an architecture's, in words; None is not compared."""
    sizes = {'num_layers': layers, 'embed_dim': width, 'hidden_dim': hidden}
    return [
        f'{name}={value} where {getattr(architecture, name)} is expected'
        for name, value in sizes.items()
        if value is not None and value != getattr(architecture, name)
    ]
