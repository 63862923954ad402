"""Private prediction: records -> batches -> synthetic examples (METHOD 4)."""

from transforms.predict.columns import COLUMNS, STRUCTURED_COLUMNS
from transforms.predict.decode import GenerateText, load_generator
from transforms.predict.reference import keep_reference
from transforms.predict.text import PredictText

__all__ = [
    'COLUMNS',
    'GenerateText',
    'PredictText',
    'STRUCTURED_COLUMNS',
    'keep_reference',
    'load_generator',
]
