"""Data and types that caller and workers share; this package imports neither side."""
