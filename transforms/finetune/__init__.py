"""DP fine-tuning: records -> units -> one trained adapter -> sampled texts."""

from transforms.finetune.columns import COLUMNS
from transforms.finetune.label_mix import DrawLabelMix
from transforms.finetune.text import FineTuneText, TrainText

__all__ = ['COLUMNS', 'DrawLabelMix', 'FineTuneText', 'TrainText']
