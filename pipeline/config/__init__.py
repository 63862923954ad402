"""What the user asked for: one typed config, read from TOML and flags, validated when built.

Each panel of `--help` is a frozen class with its own checks, and `JobConfig` is all of them
together. Every field is a key of the TOML file and a flag of the command line, with the
same name. All of them are public; the run key is not among them.
"""

from models import bundled
from pipeline.config.generation import PROMPT_PRESETS
from pipeline.config.input import CORPUS_COLUMNS, DELIMITER_HELP, ENCODING_HELP, Encoding, delimiter_of
from pipeline.config.job_config import JobConfig, path_settings
from pipeline.config.panel import setting_types
from pipeline.config.privacy import EMBEDDERS
from pipeline.config.toml import read_config

BUNDLED = bundled.FOLDER

__all__ = [
    'BUNDLED',
    'CORPUS_COLUMNS',
    'DELIMITER_HELP',
    'EMBEDDERS',
    'ENCODING_HELP',
    'PROMPT_PRESETS',
    'Encoding',
    'JobConfig',
    'delimiter_of',
    'path_settings',
    'read_config',
    'setting_types',
]
