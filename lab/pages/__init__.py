"""The pages in a real browser: their tests, and the screenshots of the documentation."""
