"""JSON Schemas of all JSON that users see, as files, and the types that they are made from."""
