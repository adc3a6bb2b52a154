"""What `bench`, `tune` and `profile` measure with.

::

    Workload (what is stepped) ──┐
    Contender (what steps it) ───┴─▶ measure(Plan) ─▶ Measurement ... ─▶ Report (JSON, plot)
"""
