"""DP fine-tuning of an adapter, and text that is sampled with it: what one worker computes."""
