"""The backend of a Ray cluster; backend.py is its caller's side, actor.py its actors' side."""
