"""The model that suits this machine: by what is there, and by nothing of the records."""

from models import bundled, fetched
from pipeline.methods.follows import Follows


def model() -> Follows:
    """Gemma 3 270M where its weights were fetched, else the bundled model, with how to get the other."""
    if fetched.fetched_file().is_file():
        return Follows(
            value=fetched.MODEL, because='Its weights are here: the smallest model that writes English.'
        )
    return Follows(
        value=bundled.MODEL,
        because=f'No weights of {fetched.MODEL} are here. The bundled model shows that everything works, and '
        f'writes no English. {fetched.REMEDY}, then repeat `dp-corpus start` with --force.',
    )
