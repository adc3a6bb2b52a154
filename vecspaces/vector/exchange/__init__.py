"""What caller and workers share; imports neither."""
