"""Public fakes and the store conformance suite, for afterturn's tests and for those of its users. Imports base only."""
