"""The vocabulary every room shares: values, errors, ports, settings, time. Imports nothing above it."""
