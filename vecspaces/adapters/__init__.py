"""Adapters to other libraries, one per module; importing this package imports none of them."""
