"""DP fine-tuning: DP-SGD trains an adapter of the model, and texts are sampled with it (FT)."""
