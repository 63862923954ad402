"""What one worker computes; knows nothing of Beam."""
