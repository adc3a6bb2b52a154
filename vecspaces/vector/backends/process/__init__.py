"""The backend of worker processes; backend.py is its caller's side, worker.py its worker's side."""
