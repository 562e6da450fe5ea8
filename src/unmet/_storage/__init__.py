"""Shared helpers for files on disk: DuckDB, whole-or-nothing writing, hashes, seals and folder locks."""
