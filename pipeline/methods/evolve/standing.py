"""What votes on whole texts were worth, and when they are the first choice."""

from pipeline.methods.method import LAST_RANK, Score, Standing

# Rows of docs/measured.md, with Gemma 3 270M and MiniLM, which both voted and judged.
SCORES = (
    Score(what='news', records=8000, epsilon=1, texts=200, worth=0.85, of_records=0.83),
    Score(what='questions', records=5452, epsilon=1, texts=300, worth=0.74, of_records=0.80),
)
# With 828 medical notes it was no better than votes on tokens; in between nothing was scored.
_FEWEST_UNITS = 2000


def standing(units: float, epsilon: float | None) -> Standing:
    """First with thousands of units: the scored runs at ε = 1 are ahead of the other methods' at ε = 3."""
    because = (
        'It takes minutes, its price does not grow with the texts, and no record reaches the language model'
    )
    if units >= _FEWEST_UNITS:
        return Standing(
            rank=1, because=f'With thousands of records its texts were worth the most. {because}.'
        )
    return Standing(rank=LAST_RANK, because=f'{because}; with few records its votes are the noisiest.')
