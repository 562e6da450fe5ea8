"""Supply: the state of every zone in every minute, and the reason for it."""
