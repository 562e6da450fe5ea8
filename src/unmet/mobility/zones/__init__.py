"""Zones: stations, super-hubs, polygons and H3 cells."""
