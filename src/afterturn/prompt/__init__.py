"""The parts of a prompt that afterturn builds: compaction, context files, the standing block."""
