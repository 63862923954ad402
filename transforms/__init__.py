"""Beam transforms: thin wiring beside the plain functions that hold the logic."""

import logging

# At DEBUG this logger of Beam's prints every element, which here is a record (METHOD 8).
# Set where every worker passes, since a level for all loggers is an option of the runner.
logging.getLogger('apache_beam.runners.worker.operations').setLevel(logging.INFO)
