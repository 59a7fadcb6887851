"""Many conversations at once for a long time: memory, delays and the file must not grow without a reason."""
