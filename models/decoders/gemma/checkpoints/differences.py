"""What an error says of a checkpoint that is another model's: the few numbers that tell models apart."""

from collections.abc import Callable, Sequence

from models.decoders.gemma import architectures

# Items that an error lists before it only counts.
LISTED = 3


def listed(items: Sequence[str], separator: str = '; ') -> str:
    """The first few, and how many more there are."""
    more = f' and {len(items) - LISTED} more' if len(items) > LISTED else ''
    return separator.join(items[:LISTED]) + more


def remedy(fits: Callable[[architectures.Architecture], bool], otherwise: str) -> str:
    """Which model to ask for, where the checkpoint fits some; else `otherwise`."""
    fitting = [name for name, known in architectures.ARCHITECTURES.items() if fits(known)]
    return f'Its numbers are those of --model {" or ".join(fitting)}.' if fitting else otherwise


def check_numbers(
    architecture: architectures.Architecture, *, layers: int | None, width: int | None, hidden: int | None
) -> None:
    """Refuses a checkpoint whose weights are of another depth or width.

    Args:
        architecture: What the checkpoint should hold.
        layers: Its number of layers; None, like the next two, where its files do not tell.
        width: Its width D of the residual stream.
        hidden: Its width F of the feed-forward.

    Raises:
        ValueError: See above; names what differs and the model that it fits.
    """
    found = {'num_layers': layers, 'embed_dim': width, 'hidden_dim': hidden}

    def differing(of: architectures.Architecture) -> list[str]:
        return [
            f'{name}={value} where {getattr(of, name)} is expected'
            for name, value in found.items()
            if value is not None and value != getattr(of, name)
        ]

    if complaints := differing(architecture):
        raise ValueError(
            f'Expected the weights of the chosen model, got {"; ".join(complaints)}. '
            + remedy(lambda known: not differing(known), 'Choose the model that the checkpoint was made for.')
        )
