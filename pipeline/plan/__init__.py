"""One run's plan, and all methods side by side: nothing is read or paid."""
