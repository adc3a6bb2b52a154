"""Data and types that caller and workers share; imports neither."""
