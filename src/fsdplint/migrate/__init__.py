"""Migrations: change a whole program from one way of sharding or saving to another."""
