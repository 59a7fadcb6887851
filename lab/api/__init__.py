"""Sends generated requests to a real server, by its OpenAPI document."""
