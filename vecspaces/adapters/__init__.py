"""Adapters to other libraries, one module each; importing this package imports none of them."""
