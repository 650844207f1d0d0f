"""Settings, and which rules and releases they select."""
