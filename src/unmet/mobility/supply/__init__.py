"""Supply: what riders could rent in every minute, with the reason for each state."""
