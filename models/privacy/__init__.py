"""The mathematics of private decoding: no Beam, no model, no input or output."""
