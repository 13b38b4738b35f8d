"""Engines: they carry plans and models to the clients and replies back."""
