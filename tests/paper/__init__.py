"""The Kayos paper, claim by claim: one file per section, one test per claim that a machine can check.

Where Kayos differs from the paper on purpose, the test shows what would go wrong otherwise.
"""
