"""Sources of texts that no record is shown to: the run's own decoder, or an endpoint."""
