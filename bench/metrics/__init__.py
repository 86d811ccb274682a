"""Member logits to per-sample records (`records`), and records to numbers (all other modules).

Only `records` needs torch; import the submodules directly.
"""
