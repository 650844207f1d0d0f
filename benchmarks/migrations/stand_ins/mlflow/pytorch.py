"""Models that are tracked nowhere."""
