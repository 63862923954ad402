"""Texts that evolve under noisy votes: which survive, of what label, and who their children's parents are."""
