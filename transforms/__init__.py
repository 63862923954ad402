"""Beam transforms: thin wiring beside the plain functions that hold the logic."""

import logging

# At DEBUG this logger of Beam prints every element, and elements are records (METHOD 8). It is set here,
# because every worker imports this package; a level for all loggers would be an option of the runner.
logging.getLogger('apache_beam.runners.worker.operations').setLevel(logging.INFO)
