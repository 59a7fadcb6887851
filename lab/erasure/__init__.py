"""Made-up words that enter a store by every path and are forgotten while work is under way: none of them stays."""
