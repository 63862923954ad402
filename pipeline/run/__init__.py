"""One run of the job: its settings, folders, identity, price, options, start and reports."""
