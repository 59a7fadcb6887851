"""Reviews by a real, very small model on this machine: whatever it says, nothing invalid is stored and nothing lost."""
