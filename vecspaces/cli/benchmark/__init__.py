"""What `bench`, `tune` and `profile` measure with.

::

    Contender (what steps the environments) ──▶ time_in_turns ──▶ Timings ──▶ Comparison, best(...)
"""
