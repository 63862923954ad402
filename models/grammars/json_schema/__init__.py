"""JSON Schema as an expression of bytes: the texts of its values in one compact form.

The form: no white space; an object's keys in the order in which `properties` declares them, each spelled
as `json.dumps(ensure_ascii=False)` does, and no undeclared one; `integer` without a fraction, numbers
without an exponent and zero without a sign; `enum` and `const` in their shortest spelling; other strings
in any spelling of RFC 8259. A text is accepted if, and only if, it has that form and is valid. There are a
few exceptions, all in `format`, and all of them refuse a text that is valid: seconds of 60, lower-case `t`
and `z`, the year 0000, e-mail addresses with quoted local parts, address literals, non-ASCII characters or
more than four labels, and escapes in any of these strings.

A schema that cannot be enforced exactly is refused with its keyword and its place; only annotations are
skipped. Drafts 2020-12 and 7 agree on everything that is left.

`json_text.py` reads and spells JSON values, `keywords.py` says which keywords are enforced,
`references.py` follows `$ref`, `scalars.py` writes numbers and strings, `schema.py` puts these together,
`properties.py` gives properties of an object a value in advance, and `compact.py` rewrites a JSON text in the
compact form.
"""
