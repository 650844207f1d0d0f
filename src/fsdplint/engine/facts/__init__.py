"""What rules may ask: typed facts, each a set of events on one feasible path."""
