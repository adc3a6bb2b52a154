"""What `bench`, `tune` and `profile` measure with.

::

    Contender (what steps the environments) ──▶ measure(Plan) ─▶ Measurement ... ─▶ Report
"""
