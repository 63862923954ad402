"""JSON Schemas of every JSON file and object that a user meets, as files, and what they are made from."""
