"""When votes on whole texts are the first choice; docs/measured.md scores none of their runs yet."""

from pipeline.methods.method import LAST_RANK, Standing

_FEWEST_UNITS = 1000


def standing(units: float, epsilon: float | None) -> Standing:
    """After a method that was scored higher, where there are enough units to outvote the noise."""
    because = (
        'It takes minutes, its price does not grow with the texts, and no record reaches the language model'
    )
    if units >= _FEWEST_UNITS:
        return Standing(rank=2, because=f'{because}.')
    return Standing(rank=LAST_RANK, because=f'{because}; with few records its votes are the noisiest.')
