"""Public training programs, migrated as published and proven on ranks."""
