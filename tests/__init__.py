"""Tests of vecspaces; their folders mirror the package."""
