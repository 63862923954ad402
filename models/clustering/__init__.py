"""What groups similar records: embedders and centres."""
