"""Records of operators: trips, station status, stations and weather, read and checked."""

from unmet.mobility.records.read import Records, parse_memory, read_records

__all__ = ["Records", "parse_memory", "read_records"]
