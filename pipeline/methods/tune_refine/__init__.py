"""Training, then votes on the texts that it gives (METHOD 4f): one run, one report, one epsilon."""
