"""Any decoder-only transformer, driven by the numbers of its `Architecture`.

A family beside this folder gives its models' numbers, what its files call their tensors, and a tokenizer.
"""
