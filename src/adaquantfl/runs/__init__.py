"""Presets in; tables, figures and reports out."""
