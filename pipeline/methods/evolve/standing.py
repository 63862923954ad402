"""What votes on whole texts were worth, and when they are the first choice."""

from pipeline.methods.method import FEWEST_OF_LABEL, LAST_RANK, Score, Standing

# Rows of docs/measured.md, with Gemma 3 270M and MiniLM, which both voted and judged.
SCORES = (
    Score(what='news', records=8000, labels=4, epsilon=1, texts=200, worth=0.85, of_records=0.83),
    Score(what='questions', records=5452, labels=6, epsilon=1, texts=300, worth=0.74, of_records=0.80),
    Score(what='reviews', records=20000, labels=2, epsilon=1, texts=200, worth=0.68, of_records=0.75),
    Score(what='bank questions', records=10003, labels=77, epsilon=1, texts=515, worth=0.54, of_records=0.84),
)
# With 828 medical notes it was no better than votes on tokens; in between nothing was scored.
_FEWEST_UNITS = 2000


def standing(units: float, epsilon: float | None, labels: int) -> Standing:
    """First with thousands of units and hundreds of each label: at ε = 1 ahead of other methods at ε = 3."""
    because = (
        'It takes minutes, its price does not grow with the texts, and no record reaches the language model'
    )
    if units >= _FEWEST_UNITS and units / labels < FEWEST_OF_LABEL:
        because = (
            'With so many labels noise is most of what the votes of one label say: with 130 records of each '
            f'its texts were worth less than those of an adapter. {because}.'
        )
        return Standing(rank=2, because=because)
    if units >= _FEWEST_UNITS:
        return Standing(
            rank=1, because=f'With thousands of records its texts were worth the most. {because}.'
        )
    return Standing(rank=LAST_RANK, because=f'{because}; with few records its votes are the noisiest.')
