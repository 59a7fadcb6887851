"""Programs that measure, break and show afterturn. Nothing of the runtime depends on them."""
